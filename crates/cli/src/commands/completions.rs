//! `bellwether completions`: what shells want to know.

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(args: CompletionsArgs) -> anyhow::Result<Exit> {
    // Not straight to stdout: the generator panics when it is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "bellwether", &mut script);
    Ok(output::answer(|out| {
        out.write_all(&script)?;
        Ok(Exit::Done)
    })?)
}
