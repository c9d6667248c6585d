//! `bellwether man`: pages of the manual.

mod page;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command as Process, Stdio};

use anyhow::Context;
use clap::Command;

use crate::args::{ManArgs, help};
use crate::exit::Exit;
use crate::output;
use crate::output::refusal::Refusal;

pub(crate) fn run(args: ManArgs) -> anyhow::Result<Exit> {
    if let [folder] = &args.what[..]
        && folder.to_string_lossy().contains('/')
    {
        return write_all(Path::new(folder));
    }
    let page = page::render(&command(&args.what)?);
    if io::stdout().is_terminal() && is_shown_by_man(page.as_bytes()) {
        return Ok(Exit::Done);
    }
    Ok(output::answer(|out| {
        out.write_all(page.as_bytes())?;
        Ok(Exit::Done)
    })?)
}

fn write_all(folder: &Path) -> anyhow::Result<Exit> {
    let mut program = help::explained();
    program.build();
    let written =
        std::fs::create_dir_all(folder).and_then(|()| write_with_all_below(&program, folder));
    written.with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(Exit::Done)
}

fn write_with_all_below(command: &Command, folder: &Path) -> io::Result<()> {
    let file = format!("{}.1", page::file_name(command));
    std::fs::write(folder.join(file), page::render(command))?;
    page::below(command).try_for_each(|below| write_with_all_below(below, folder))
}

/// The command with this name.
fn command(words: &[OsString]) -> Result<Command, Refusal> {
    let mut command = help::explained();
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
