//! Everything that bellwether itself says: answers on stdout, which belongs to them and to the command that is run, and
//! all else on stderr.

use std::fmt::{self, Display};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;

use crate::exit::Exit;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    quiet: bool,
}

impl Output {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Whether only errors are said.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Something good to know; silenced by `--quiet`.
    pub(crate) fn notice(self, text: impl Display) {
        if !self.quiet {
            say(format_args!("bellwether: {text}"));
        }
    }

    /// What somebody asked for who is at a terminal.
    pub(crate) fn say(self, text: impl Display) {
        say(format_args!("bellwether: {text}"));
    }

    /// A question, which is answered on the same line.
    pub(crate) fn ask(self, text: impl Display) {
        let _ = write!(io::stderr().lock(), "bellwether: {text}");
    }

    /// What to do next about an error.
    pub(crate) fn hint(self, text: impl Display) {
        say(format_args!("hint: {text}"));
    }

    /// What went wrong, with its causes, and what to do next if anybody on the way knows.
    pub(crate) fn error(self, error: &anyhow::Error) {
        say(format_args!("bellwether: {error:#}"));
        if let Some(hinted) = error.downcast_ref::<Hinted>() {
            self.hint(&hinted.hint);
        }
    }
}

/// An error with a next step.
#[derive(Debug)]
pub(crate) struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// Also a context for another error: what failed, and what to do about it.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// Writes an answer to stdout. Whoever closes the pipe has seen enough.
pub(crate) fn answer(write: impl FnOnce(&mut dyn Write) -> io::Result<Exit>) -> io::Result<Exit> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|exit| out.flush().map(|()| exit)) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        result => result,
    }
}

/// Writes an answer of one line.
pub(crate) fn answer_line(line: impl Display) -> io::Result<Exit> {
    answer(|out| {
        writeln!(out, "{line}")?;
        Ok(Exit::Done)
    })
}

/// Writes an answer that is data, byte for byte; for people, with a line end.
pub(crate) fn answer_data(data: &[u8]) -> io::Result<Exit> {
    answer(|out| {
        out.write_all(&data_for_reader(data))?;
        Ok(Exit::Done)
    })
}

/// Data byte for byte; for people, with a line end.
pub(crate) fn data_for_reader(data: &[u8]) -> Vec<u8> {
    let wants_line_end = io::stdout().is_terminal() && !data.is_empty() && !data.ends_with(b"\n");
    let line_end: &[u8] = if wants_line_end { b"\n" } else { b"" };
    [data, line_end].concat()
}

/// Writes a part of an answer at once, and tells whether anybody reads on.
pub(crate) fn print_now(part: impl AsRef<[u8]>) -> io::Result<ControlFlow<()>> {
    let mut out = io::stdout().lock();
    match out.write_all(part.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        written => written.map(ControlFlow::Continue),
    }
}

fn say(line: impl Display) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
