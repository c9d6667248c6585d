//! Everything that bellwether itself says, on stderr: stdout belongs to answers and to the command that is run.

use std::fmt::Display;
use std::io::{self, Write};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    quiet: bool,
}

impl Output {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Something good to know; silenced by `--quiet`.
    pub(crate) fn notice(self, text: impl Display) {
        if !self.quiet {
            say(format_args!("bellwether: {text}"));
        }
    }

    /// What went wrong, with its causes.
    pub(crate) fn error(self, error: &anyhow::Error) {
        say(format_args!("bellwether: {error:#}"));
    }
}

fn say(line: impl Display) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
