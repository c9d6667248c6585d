//! `bellwether completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Args, CompletionsArgs};
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(args: CompletionsArgs) -> anyhow::Result<Exit> {
    // These three ask `bellwether complete` while the user types, so they never change.
    let script = match args.shell {
        Shell::Bash => include_str!("complete/bellwether.bash").into(),
        Shell::Zsh => include_str!("complete/bellwether.zsh").into(),
        Shell::Fish => include_str!("complete/bellwether.fish").into(),
        shell => {
            // Not directly to stdout: the generator panics when stdout is closed.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "bellwether", &mut script);
            script
        }
    };
    Ok(output::answer(|out| {
        out.write_all(&script)?;
        Ok(Exit::Done)
    })?)
}
