//! The data of nodes: where a command gets it from, and how JSON shows it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::args::DataArgs;
use crate::refusal::Refusal;

/// The longest data of a node that is read; servers take less, 1 MiB unless they are told otherwise.
const DATA_BYTES_MAX: u64 = 64 << 20;

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

/// The data that the arguments say; empty if they say none.
pub(crate) fn read(args: &DataArgs) -> anyhow::Result<Vec<u8>> {
    match (args.data.as_deref(), args.file.as_deref()) {
        (Some("-"), _) => read_file(Path::new("-"), DATA_BYTES_MAX),
        (Some(data), _) => Ok(data.as_bytes().to_vec()),
        (None, Some(file)) => read_file(file, DATA_BYTES_MAX),
        (None, None) => Ok(Vec::new()),
    }
}

/// Whether stdin is used up by the data.
pub(crate) fn is_stdin(args: &DataArgs) -> bool {
    args.data.as_deref() == Some("-") || args.file.as_deref() == Some(Path::new("-"))
}

/// Reads a whole file; `-` is stdin. What has `bytes_max` or more is refused.
pub(crate) fn read_file(file: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut data = Vec::new();
    if file == Path::new("-") {
        let read = std::io::stdin()
            .lock()
            .take(bytes_max)
            .read_to_end(&mut data);
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
