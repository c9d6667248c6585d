//! `bellwether man`: pages of the manual.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command as Process, Stdio};

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::args::{Args, ManArgs};
use crate::exit::Exit;
use crate::output;
use crate::output::refusal::Refusal;

pub(crate) fn run(args: ManArgs) -> anyhow::Result<Exit> {
    if let [folder] = &args.what[..]
        && folder.to_string_lossy().contains('/')
    {
        return write_all(Path::new(folder));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command(&args.what)?).render(&mut page)?;
    if io::stdout().is_terminal() && is_shown_by_man(&page) {
        return Ok(Exit::Done);
    }
    Ok(output::answer(|out| {
        out.write_all(&page)?;
        Ok(Exit::Done)
    })?)
}

fn write_all(folder: &Path) -> anyhow::Result<Exit> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Args::command(), folder));
    written.with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(Exit::Done)
}

/// The command with this name.
fn command(words: &[OsString]) -> Result<Command, Refusal> {
    let mut command = Args::command();
    // Gives each command its full name and the global options.
    command.build();
    for word in words {
        let word = word.to_string_lossy();
        let Some(below) = command.find_subcommand(&*word) else {
            let what = format!("there is no command `{word}`");
            return Err(
                Refusal::usage(what).hint("the name of a folder for all pages contains a slash")
            );
        };
        command = below.clone();
    }
    Ok(command)
}

/// Shows a page with `man`. Returns false if it is not installed.
fn is_shown_by_man(page: &[u8]) -> bool {
    let started = Process::new("man")
        .args(["-l", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut man) = started else {
        return false;
    };
    if let Some(mut stdin) = man.stdin.take() {
        // `man` may have been quit.
        let _ = stdin.write_all(page);
    }
    man.wait().is_ok_and(|status| status.success())
}
