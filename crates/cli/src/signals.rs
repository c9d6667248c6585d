//! Signals to this process.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The signals that ask a process to end.
const END: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// The signals that ask a server to end.
const END_SERVER: [Signal; 2] = [Signal::TERM, Signal::INT];

/// The signals that are passed on to a job.
const JOB: [Signal; 7] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
];

/// Whether a signal asks a worker to end, so that it starts no further job. SIGHUP does not: many programs reload their settings
/// on it.
pub(crate) fn ends_a_job(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT)
}

/// The signals that matter while an editor runs: those of the terminal, which are for the editor, and those that end this process.
const EDITOR: [Signal; 4] = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT];

/// Catches signals from the moment it is made.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Signals that ask this process to end.
    pub(crate) fn to_end() -> io::Result<Self> {
        Self::catch(&END)
    }

    /// The same for a server, which does not end on SIGHUP: see [`Hangups`].
    pub(crate) fn to_end_server() -> io::Result<Self> {
        Self::catch(&END_SERVER)
    }

    /// The same for a daemon, even if the command that started it ignores some of them.
    pub(crate) fn to_end_daemon() -> io::Result<Self> {
        Self::catch_all(&END)
    }

    /// Signals that are passed on to a job.
    pub(crate) fn for_job() -> io::Result<Self> {
        Self::catch(&JOB)
    }

    /// Signals that may arrive while an editor runs.
    pub(crate) fn beside_editor() -> io::Result<Self> {
        Self::catch(&EDITOR)
    }

    /// Leaves out signals that the parent made this process ignore, as `nohup` does: they stay ignored here and in child processes.
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

    /// Waits for the next signal. Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns a signal that has arrived already. It first lets the runtime collect what the system has delivered: the rest would
    /// reach the next runtime of this process.
    pub(crate) async fn come(&mut self) -> Option<Signal> {
        tokio::task::yield_now().await;
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(signal) => Some(signal),
            Poll::Pending => None,
        }
    }

    fn poll_next(&mut self, context: &mut Context) -> Poll<Signal> {
        let mut caught = self.0.iter_mut();
        let come = caught.find_map(|(signal, caught)| {
            let is_come = caught.poll_recv(context).is_ready();
            is_come.then_some(*signal)
        });
        come.map_or(Poll::Pending, Poll::Ready)
    }
}

/// SIGHUP, from the moment this is made: a request to read settings again, or the end of the terminal.
#[derive(Debug)]
pub(crate) struct Hangups {
    signals: Signals,
    had_terminal: bool,
}

impl Hangups {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::catch(&[Signal::HUP])?,
            had_terminal: has_terminal(),
        })
    }

    /// Waits for the next request. `None` if the terminal is gone on which this process was started: the kernel takes it from a process
    /// before it sends the signal.
    pub(crate) async fn next(&mut self) -> Option<()> {
        self.signals.next().await;
        let is_hung_up = self.had_terminal && !has_terminal();
        (!is_hung_up).then_some(())
    }
}

/// Whether this process has a controlling terminal.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// The signals that this process ignores, one bit each.
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
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn bits_of_ignored_signals_are_read() {
        // Every Rust program ignores it.
        assert!(is_in(ignored().unwrap(), Signal::PIPE));
        assert!(!is_in(ignored().unwrap(), Signal::USR1));
    }

    #[test]
    fn signal_that_has_come_is_not_left_to_the_next_runtime() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap()
        };
        runtime().block_on(async {
            let mut signals = Signals::catch(&[Signal::USR2]).unwrap();
            // To this thread, whose handler runs before this returns.
            raise(nix::sys::signal::Signal::SIGUSR2).unwrap();
            assert_eq!(signals.come().await, Some(Signal::USR2));
            assert_eq!(signals.come().await, None);
        });
        runtime().block_on(async {
            let mut signals = Signals::catch(&[Signal::USR2]).unwrap();
            assert_eq!(signals.come().await, None);
        });
    }
}
