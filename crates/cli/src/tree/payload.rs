//! Reads the data for a node from arguments, files or stdin.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::path::Path;

use anyhow::Context;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::args::{DataArgs, ItemArgs};
use crate::output::input::{self, Heard};
use crate::output::refusal::Refusal;

/// The longest data that is read. Servers accept less, by default 1 MiB.
const DATA_BYTES_MAX: u64 = 64 << 20;

/// The name of stdin on the command line.
const STDIN: &str = "-";

/// What messages call a file.
pub(crate) fn name(file: &Path) -> std::path::Display<'_> {
    match file == Path::new(STDIN) {
        true => Path::new("stdin").display(),
        false => file.display(),
    }
}

/// The data in the arguments, or else stdin. A terminal is refused: a user who forgot the data must not overwrite a node with nothing,
/// or create an empty one.
pub(crate) fn read(args: &DataArgs) -> anyhow::Result<Vec<u8>> {
    match given(args)? {
        Some(data) => Ok(data),
        None if io::stdin().is_terminal() => Err(missing(
            "write it after the path, use --file FILE, or pipe it; '' is empty data",
        )),
        None => read_stdin(),
    }
}

/// The items in the arguments, or else stdin.
pub(crate) fn read_items(args: &ItemArgs) -> anyhow::Result<Vec<Vec<u8>>> {
    if args.lines || args.null {
        let end = if args.null { 0 } else { b'\n' };
        let input = read_stdin()?;
        let items = input
            .split(|&byte| byte == end)
            .filter(|item| !item.is_empty());
        return Ok(items.map(<[u8]>::to_vec).collect());
    }
    if let [_, _, ..] = &args.data[..] {
        return Ok(args
            .data
            .iter()
            .map(|item| item.as_bytes().to_vec())
            .collect());
    }
    let one = DataArgs {
        data: args.data.first().cloned(),
        file: args.file.clone(),
    };
    Ok(vec![read(&one)?])
}

/// The data in the arguments, for a command that runs until stdin ends; see [`until_input_ends`]. Without any, it is empty, unless stdin
/// is a terminal, which is refused as by [`read`].
pub(crate) fn given_or_empty(args: &DataArgs) -> anyhow::Result<Vec<u8>> {
    match given(args)? {
        None if io::stdin().is_terminal() => Err(missing(
            "write it after the path, or use --file FILE; '' is empty data",
        )),
        data => Ok(data.unwrap_or_default()),
    }
}

fn missing(hint: &str) -> anyhow::Error {
    Refusal::usage("the data is missing").hint(hint).into()
}

/// Waits for the end of stdin; for ever if the data was read from stdin. Piped data that the arguments do not ask for is refused, not
/// dropped. Cancel safe.
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
        Heard::Bytes => Err(
            Refusal::usage("stdin has data, which this command does not read")
                .hint("`-` as the data reads it; the command then runs until a signal arrives")
                .into(),
        ),
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
    /// Whether the data comes from stdin.
    fn is_stdin(&self) -> bool {
        self.data.as_deref() == Some(STDIN) || self.file.as_deref() == Some(Path::new(STDIN))
    }
}

/// Reads a whole file; `-` is stdin. A file of `bytes_max` or more is refused.
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

/// Makes data the stdin of this process, and of processes that it starts later.
pub(crate) fn be_stdin(data: &[u8]) -> anyhow::Result<()> {
    let mut file = File::from(memfd_create("item", MemfdFlags::CLOEXEC)?);
    file.write_all(data)?;
    file.rewind()?;
    rustix::stdio::dup2_stdin(file)?;
    Ok(())
}
