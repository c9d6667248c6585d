//! `bellwether note`: records the progress of a job.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;

use crate::args::NoteArgs;
use crate::exit::Exit;
use crate::job::notes;
use crate::output::refusal::Refusal;
use crate::tree::payload;

pub(crate) fn run(args: NoteArgs) -> anyhow::Result<Exit> {
    let Some(keeper) = args.keeper_socket else {
        return Err(Refusal::usage("`note` works only within a job")
            .hint("run it in a command of `bellwether lock`, `elect` or `once`")
            .into());
    };
    let piped;
    let note = match args.text.as_bytes() {
        b"-" => {
            // One byte more than a note may have.
            let bytes_max = notes::BYTES_MAX as u64 + 2;
            piped = payload::read_file(Path::new("-"), bytes_max)?;
            piped.strip_suffix(b"\n").unwrap_or(&piped)
        }
        typed => typed,
    };
    if note.len() > notes::BYTES_MAX {
        let what = format!("the note is longer than {} bytes", notes::BYTES_MAX);
        return Err(Refusal::usage(what).into());
    }
    let recorded =
        notes::send(&keeper, note).context("the process that keeps the lock does not answer")?;
    recorded.map_err(Refusal::no)?;
    Ok(Exit::Done)
}
