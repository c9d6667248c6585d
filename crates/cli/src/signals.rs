//! The signals that ask a command to end.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// SIGTERM, SIGINT and SIGHUP, caught from the moment this is made.
#[derive(Debug)]
pub(crate) struct Signals {
    term: unix::Signal,
    int: unix::Signal,
    hup: unix::Signal,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            term: unix::signal(SignalKind::terminate())?,
            int: unix::signal(SignalKind::interrupt())?,
            hup: unix::signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. Cancel safe: one that comes meanwhile is kept.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::TERM,
            _ = self.int.recv() => Signal::INT,
            _ = self.hup.recv() => Signal::HUP,
        }
    }
}
