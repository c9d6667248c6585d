//! `bellwether note`: how far a job is.

use std::os::unix::ffi::OsStrExt;

use anyhow::Context;

use crate::args::NoteArgs;
use crate::exit::Exit;
use crate::notes;
use crate::refusal::Refusal;

pub(crate) fn run(args: NoteArgs) -> anyhow::Result<Exit> {
    let Some(keeper) = args.keeper_socket else {
        return Err(
            Refusal::usage("there is no job here to note anything about")
                .hint("it is for commands that `bellwether lock` and the like run")
                .into(),
        );
    };
    let note = args.text.as_bytes();
    if note.len() > notes::BYTES_MAX {
        let what = format!("a note has at most {} bytes", notes::BYTES_MAX);
        return Err(Refusal::usage(what).into());
    }
    let recorded = notes::send(&keeper, note).context("the keeper of the job does not answer")?;
    recorded.map_err(Refusal::no)?;
    Ok(Exit::Done)
}
