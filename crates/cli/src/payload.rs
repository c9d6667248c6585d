//! The data of nodes: where a command gets it from, and how JSON shows it.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::args::DataArgs;
use crate::input::{self, Heard};
use crate::refusal::Refusal;

/// The longest data of a node that is read; servers take less, 1 MiB unless they are told otherwise.
const DATA_BYTES_MAX: u64 = 64 << 20;

/// What is typed for stdin.
const STDIN: &str = "-";

/// Data in JSON: text if it is UTF-8, else base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum DataJson {
    Text(String),
    Base64(String),
}

impl From<Vec<u8>> for DataJson {
    fn from(data: Vec<u8>) -> Self {
        match String::from_utf8(data) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(BASE64.encode(error.as_bytes())),
        }
    }
}

impl TryFrom<DataJson> for Vec<u8> {
    type Error = base64::DecodeError;

    fn try_from(data: DataJson) -> Result<Self, Self::Error> {
        match data {
            DataJson::Text(text) => Ok(text.into_bytes()),
            DataJson::Base64(text) => BASE64.decode(text),
        }
    }
}

/// The data that the arguments give, or else stdin. A terminal is refused: a user who forgot the data must not overwrite
/// a node with nothing.
pub(crate) fn read(args: &DataArgs) -> anyhow::Result<Vec<u8>> {
    match given(args)? {
        Some(data) => Ok(data),
        None if io::stdin().is_terminal() => Err(Refusal::usage("the data is missing")
            .hint("type it behind the path, or use --file FILE, or pipe it; '' is empty data")
            .into()),
        None => read_stdin(),
    }
}

/// As [`read`], for something new, which may be empty: so it is on a terminal.
pub(crate) fn read_or_empty(args: &DataArgs) -> anyhow::Result<Vec<u8>> {
    match given(args)? {
        Some(data) => Ok(data),
        None if io::stdin().is_terminal() => Ok(Vec::new()),
        None => read_stdin(),
    }
}

/// The data that the arguments give, or else none, for a command that stays until stdin ends: see [`until_input_ends`].
pub(crate) fn given_or_empty(args: &DataArgs) -> anyhow::Result<Vec<u8>> {
    given(args).map(Option::unwrap_or_default)
}

/// Waits for the end of stdin, which is how long such a command stays; for ever if the data has used it up. Piped data
/// that the arguments do not ask for is refused rather than dropped. Cancel safe.
pub(crate) async fn until_input_ends(args: &DataArgs) -> anyhow::Result<()> {
    if args.is_stdin() {
        return std::future::pending().await;
    }
    let is_given = args.data.is_some() || args.file.is_some();
    if is_given || io::stdin().is_terminal() {
        input::end().await;
        return Ok(());
    }
    match input::end_or_bytes().await {
        Heard::End => Ok(()),
        Heard::Bytes => Err(Refusal::usage(
            "stdin has data, and nothing says that it is to be read",
        )
        .hint("`-` in the place of the data reads it; the command stays until a signal then")
        .into()),
    }
}

fn given(args: &DataArgs) -> anyhow::Result<Option<Vec<u8>>> {
    match (args.data.as_deref(), args.file.as_deref()) {
        (Some(STDIN), _) => read_stdin().map(Some),
        (Some(data), _) => Ok(Some(data.as_bytes().to_vec())),
        (None, Some(file)) => read_file(file, DATA_BYTES_MAX).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_stdin() -> anyhow::Result<Vec<u8>> {
    read_file(Path::new(STDIN), DATA_BYTES_MAX)
}

impl DataArgs {
    /// Whether stdin is used up by the data.
    fn is_stdin(&self) -> bool {
        self.data.as_deref() == Some(STDIN) || self.file.as_deref() == Some(Path::new(STDIN))
    }
}

/// Reads a whole file; `-` is stdin. What has `bytes_max` or more is refused.
pub(crate) fn read_file(file: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut data = Vec::new();
    if file == Path::new(STDIN) {
        let read = io::stdin().lock().take(bytes_max).read_to_end(&mut data);
        read.context("cannot read stdin")?;
    } else {
        let opened = File::open(file);
        let read = opened.and_then(|file| file.take(bytes_max).read_to_end(&mut data));
        read.with_context(|| format!("cannot read {}", file.display()))?;
    }
    if data.len() as u64 == bytes_max {
        let (file, mib) = (file.display(), bytes_max >> 20);
        return Err(
            Refusal::failed(format!("cannot read {file}: it has {mib} MiB or more")).into(),
        );
    }
    Ok(data)
}

/// Makes data the stdin of this process, and of those that it starts from now on.
pub(crate) fn be_stdin(data: &[u8]) -> anyhow::Result<()> {
    let mut file = File::from(memfd_create("item", MemfdFlags::CLOEXEC)?);
    file.write_all(data)?;
    file.rewind()?;
    rustix::stdio::dup2_stdin(file)?;
    Ok(())
}

/// Whether it can be shown on a terminal: text without control characters other than line ends and tabs.
pub(crate) fn is_plain_text(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(|text| {
        text.chars()
            .all(|c| matches!(c, '\n' | '\t') || !c.is_control())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_byte() {
        for (data, json) in [
            (b"".to_vec(), r#"{"text":""}"#),
            ("käse\n".into(), r#"{"text":"käse\n"}"#),
            (vec![0xff, 0], r#"{"base64":"/wA="}"#),
        ] {
            let shown = DataJson::from(data.clone());
            assert_eq!(serde_json::to_string(&shown).unwrap(), json);
            assert_eq!(Vec::try_from(shown).unwrap(), data);
        }
        assert!(serde_json::from_str::<DataJson>(r#"{"hex":"00"}"#).is_err());
    }

    #[test]
    fn escape_sequences_are_no_plain_text() {
        assert!(is_plain_text("a\tkäse\n".as_bytes()));
        assert!(!is_plain_text(b"\x1b[2J") && !is_plain_text(&[0xff]));
    }
}
