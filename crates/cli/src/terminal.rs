//! Who has the terminal.
//!
//! The front is a process of the group that the user's shell has put in the foreground. The job has a group of its
//! own, which gets the foreground instead: so it can read what is typed, and Ctrl-C and Ctrl-Z reach it alone.

use std::fs::File;
use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    front: Pid,
}

impl Terminal {
    /// The terminal of this process, if it has one, and the group to which the front belongs.
    pub(crate) fn of_front(group: Pid) -> Option<Self> {
        let tty = File::open("/dev/tty").ok()?;
        Some(Self { tty, front: group })
    }

    /// Whether the group of the front has the foreground.
    pub(crate) fn is_with_front(&self) -> bool {
        self.is_with(self.front)
    }

    pub(crate) fn is_with(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Gives the foreground to the job, if it is the front's to give.
    pub(crate) fn lend(&self, job: Pid) {
        if self.is_with_front() {
            self.put(job);
        }
    }

    /// Takes back what was lent to the job, from it or from a part of it that has died; tells whether it had the foreground.
    pub(crate) fn take_back(&self, job: Pid) -> bool {
        let group = tcgetpgrp(&self.tty);
        let had = group.is_ok_and(|group| group == job || test_kill_process_group(group).is_err());
        if had {
            self.put(self.front);
        }
        had
    }

    /// Stops this process and those around it unless they have the foreground, until they get it. The system does both in one
    /// step for whoever touches the terminal: between a look and a stop, the shell might bring them to the front.
    pub(crate) fn stop_in_background(&self) {
        // Where no shell could let them go on, it says so instead of stopping them.
        let _ = tcsetpgrp(&self.tty, self.front);
    }

    fn put(&self, group: Pid) {
        let put = unstoppable(|| tcsetpgrp(&self.tty, group));
        if let Err(error) = put.and_then(|put| put.map_err(io::Error::from)) {
            // The group may just have died.
            tracing::debug!(%error, "the terminal could not be passed on");
        }
    }
}

/// Lets this thread, and those it starts, write to the terminal from the background whatever `stty tostop` says: a
/// process with a heartbeat must not be stopped for a notice.
pub(crate) fn write_unstopped() -> io::Result<()> {
    Ok(output_stop().thread_block()?)
}

/// Lets nothing that is typed, read or written stop this thread and those it starts.
pub(crate) fn never_stop() -> io::Result<()> {
    let stops = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
    Ok(stops.into_iter().collect::<SigSet>().thread_block()?)
}

/// Starts a process, which inherits what is blocked, with nothing blocked.
pub(crate) fn stoppable<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    with_mask(SigmaskHow::SIG_UNBLOCK, start)
}

/// Does something that the system would stop a process in the background for.
fn unstoppable<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    with_mask(SigmaskHow::SIG_BLOCK, act)
}

fn with_mask<T>(how: SigmaskHow, act: impl FnOnce() -> T) -> io::Result<T> {
    let before = output_stop().thread_swap_mask(how)?;
    let done = act();
    before.thread_set_mask()?;
    Ok(done)
}

fn output_stop() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals
}
