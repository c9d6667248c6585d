//! Signals to this process.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The signals that ask a process to end.
const END: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// The signals that a job gets from whoever started it.
const JOB: [Signal; 7] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
];

/// Whether a signal to a job means that it is to end, and no other one is to follow. SIGHUP may as well mean that it shall read
/// its settings again.
pub(crate) fn ends_a_job(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT)
}

/// The signals that concern whoever waits for an editor: those of the terminal, which are the editor's, and those to end.
const EDITOR: [Signal; 4] = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT];

/// Signals that are caught from the moment this is made.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Those that ask a process to end.
    pub(crate) fn to_end() -> io::Result<Self> {
        Self::catch(&END)
    }

    /// The same, for one who stays when whoever happened to start it is gone, and does not inherit what that one ignored.
    pub(crate) fn to_end_daemon() -> io::Result<Self> {
        Self::catch_all(&END)
    }

    /// Those that are passed on to a job.
    pub(crate) fn for_job() -> io::Result<Self> {
        Self::catch(&JOB)
    }

    /// Those that somebody may send while an editor runs.
    pub(crate) fn beside_editor() -> io::Result<Self> {
        Self::catch(&EDITOR)
    }

    /// Without those that whoever started this has it ignore, as `nohup` does: they stay ignored here, and in all that it starts.
    fn catch(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored()?;
        let heeded = signals.iter().filter(|signal| !is_in(ignored, **signal));
        Self::catch_all(heeded)
    }

    fn catch_all<'a>(signals: impl IntoIterator<Item = &'a Signal>) -> io::Result<Self> {
        let caught = signals.into_iter().map(|&signal| {
            let kind = SignalKind::from_raw(signal.as_raw());
            Ok((signal, unix::signal(kind)?))
        });
        caught.collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next one. Cancel safe: one that comes meanwhile is kept.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, caught) in &mut self.0 {
                if caught.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that this process ignores, a bit each.
fn ignored() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn is_in(bits: u64, signal: Signal) -> bool {
    bits >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_ignored_signals_are_read() {
        // What every program of Rust ignores.
        assert!(is_in(ignored().unwrap(), Signal::PIPE));
        assert!(!is_in(ignored().unwrap(), Signal::USR1));
    }
}
