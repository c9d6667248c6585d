//! Asks for a password at the terminal, without echo.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::sync::oneshot;

/// Asks for a line. `None` without a terminal, and in the background of one, where reading would stop this process: the keeper of a
/// job is there.
///
/// # Cancel safety
///
/// Echo is turned on again.
pub(crate) async fn secret(question: &str) -> io::Result<Option<String>> {
    let Ok(tty) = File::options().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    if tcgetpgrp(&tty) != Ok(getpgrp()) {
        return Ok(None);
    }
    let _unseen = Unseen::begin(tty.try_clone()?)?;
    (&tty).write_all(question.as_bytes())?;
    // On a separate thread, because a read of a terminal cannot be cancelled. The process does not wait for it at its end.
    let (sender, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(tty).read_line(&mut line);
        let _ = sender.send(read.map(|_| line));
    });
    let line = line.await.map_err(io::Error::other)??;
    let line = line.trim_end_matches(['\n', '\r']);
    Ok((!line.is_empty()).then(|| line.to_owned()))
}

/// Turns echo off until it is dropped.
struct Unseen {
    tty: File,
    before: Termios,
}

impl Unseen {
    fn begin(tty: File) -> io::Result<Self> {
        let before = tcgetattr(&tty)?;
        let mut unseen = before.clone();
        unseen.local_modes.remove(LocalModes::ECHO);
        // The newline is still echoed, so that later output begins a new line.
        unseen.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(&tty, OptionalActions::Flush, &unseen)?;
        Ok(Self { tty, before })
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.tty, OptionalActions::Flush, &self.before);
    }
}
