//! Prints answers on stdout, and notices, hints and errors on stderr.

pub(crate) mod crash_text;
pub(crate) mod input;
pub(crate) mod overview;
pub(crate) mod people;
pub(crate) mod progress;
pub(crate) mod refusal;
pub(crate) mod rendering;
pub(crate) mod screen;
pub(crate) mod time_text;
pub(crate) mod transaction_text;

use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::ops::ControlFlow;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, makedev};

use crate::exit::Exit;
use crate::output::refusal::Refusal;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    quiet: bool,
}

impl Output {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Whether notices are silenced.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Prints a notice, unless `--quiet` is set.
    pub(crate) fn notice(self, text: impl Display) {
        if !self.quiet {
            say(format_args!("bellwether: {text}"));
        }
    }

    /// Prints what the user asked for, even with `--quiet`.
    pub(crate) fn say(self, text: impl Display) {
        say(format_args!("bellwether: {text}"));
    }

    /// Asks a question, which is answered on the same line.
    pub(crate) fn ask(self, text: impl Display) {
        let _ = write!(io::stderr().lock(), "bellwether: {text}");
    }

    /// Prints a hint.
    pub(crate) fn hint(self, text: impl Display) {
        say(format_args!("hint: {text}"));
    }

    /// Prints an error with its causes, and its hint if there is one.
    pub(crate) fn error(self, error: &anyhow::Error) {
        say(format_args!("bellwether: {error:#}"));
        if let (_, Some(hint)) = refusal::meaning(error) {
            self.hint(hint);
        }
    }

    /// Prints an error, and returns its exit code.
    pub(crate) fn fail(self, error: &anyhow::Error) -> Exit {
        self.error(error);
        let (exit, _) = refusal::meaning(error);
        exit
    }
}

/// Writes an answer to stdout. A closed pipe is not an error.
pub(crate) fn answer(write: impl FnOnce(&mut dyn Write) -> io::Result<Exit>) -> io::Result<Exit> {
    let mut out = BufWriter::new(Stdout(io::stdout().lock()));
    match write(&mut out).and_then(|exit| out.flush().map(|()| exit)) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Done),
        result => result,
    }
}

/// Stdout, whose errors say what was being written.
struct Stdout<'a>(io::StdoutLock<'a>);

impl Write for Stdout<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(unwritten)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(unwritten)
    }
}

fn unwritten(error: io::Error) -> io::Error {
    // A writer tries again after an interrupt.
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("cannot write the answer to stdout: {error}")),
    }
}

/// Writes an answer of one line.
pub(crate) fn answer_line(line: impl Display) -> io::Result<Exit> {
    answer(|out| {
        writeln!(out, "{line}")?;
        Ok(Exit::Done)
    })
}

/// Writes the data of `path` as the answer, as [`data_for_reader`] returns it.
pub(crate) fn answer_data(data: &[u8], path: &str) -> anyhow::Result<Exit> {
    let data = data_for_reader(data, path)?;
    Ok(answer(|out| {
        out.write_all(&data)?;
        Ok(Exit::Done)
    })?)
}

/// The data of `path`, byte for byte; on a terminal with a newline, and refused unless it is plain text.
pub(crate) fn data_for_reader(data: &[u8], path: &str) -> Result<Vec<u8>, Refusal> {
    check_plain(data, path)?;
    let wants_line_end = io::stdout().is_terminal() && !data.is_empty() && !data.ends_with(b"\n");
    let line_end: &[u8] = if wants_line_end { b"\n" } else { b"" };
    Ok([data, line_end].concat())
}

/// Refuses data of `path` that is not plain text where stdout is a terminal: any client could control the terminal by it.
pub(crate) fn check_plain(data: &[u8], path: &str) -> Result<(), Refusal> {
    if !io::stdout().is_terminal() || rendering::is_plain_text(data) {
        return Ok(());
    }
    let what = format!("the {} bytes of {path} are not plain text", data.len());
    Err(Refusal::no(what).hint("--json escapes them; a file or a pipe gets them as they are"))
}

/// Writes a header with the names of the columns, on terminals only.
pub(crate) fn header(out: &mut dyn Write, columns: impl Display) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => writeln!(out, "{columns}"),
        false => Ok(()),
    }
}

/// Refuses what would be lost if it were printed, because stdout was closed when this process was started. The runtime has opened `/dev/null`
/// in its place, for reading and writing; a shell opens it only for writing.
pub(crate) fn check_open(what: &str) -> anyhow::Result<()> {
    let stdout = io::stdout();
    let file = fstat(&stdout)?;
    let is_null = FileType::from_raw_mode(file.st_mode) == FileType::CharacterDevice
        && file.st_rdev == makedev(1, 3);
    if !is_null || (fcntl_getfl(&stdout)? & OFlags::RWMODE) != OFlags::RDWR {
        return Ok(());
    }
    let refusal = Refusal::failed(format!("stdout is closed: {what}"));
    Err(refusal.hint("`> /dev/null` discards the output").into())
}

/// Writes and flushes a part of an answer. `Break` if the output is closed.
pub(crate) fn print_now(part: impl AsRef<[u8]>) -> io::Result<ControlFlow<()>> {
    let mut out = Stdout(io::stdout().lock());
    match out.write_all(part.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        written => written.map(ControlFlow::Continue),
    }
}

fn say(line: impl Display) {
    // A closed stderr cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
