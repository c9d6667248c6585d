//! Passes the foreground of the terminal between the front and the job.
//!
//! The shell has put the process group of the front into the foreground. The job has a process group of its own, which gets the
//! foreground instead: so the job can read from the terminal, and Ctrl-C and Ctrl-Z reach only the job.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    front: Pid,
}

impl Terminal {
    /// The controlling terminal of this process, if it has one. `group` is the process group of the front.
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

    /// Gives the foreground to the job, if the front has it.
    pub(crate) fn lend(&self, job: Pid) {
        if self.is_with_front() {
            self.put(job);
        }
    }

    /// Takes the foreground back from the job, or from a group of it that has ended. Returns whether the job had it.
    pub(crate) fn take_back(&self, job: Pid) -> bool {
        let group = tcgetpgrp(&self.tty);
        let had = group.is_ok_and(|group| group == job || test_kill_process_group(group).is_err());
        if had {
            self.put(self.front);
        }
        had
    }

    /// Stops this process group until it has the foreground. The kernel does both in one step when a background process sets the
    /// foreground group; between a check and a stop of our own, the shell might change the foreground.
    pub(crate) fn stop_in_background(&self) {
        // Without a shell that could continue the group, this is an error instead.
        let _ = tcsetpgrp(&self.tty, self.front);
    }

    fn put(&self, group: Pid) {
        let put = unstoppable(|| tcsetpgrp(&self.tty, group));
        if let Err(error) = put.and_then(|put| put.map_err(io::Error::from)) {
            // The group may have ended meanwhile.
            tracing::debug!(%error, "the terminal could not be passed on");
        }
    }
}

/// The process group that the shell of a keeper knows: that of its front.
static FRONT: OnceLock<Pid> = OnceLock::new();

/// Tells [`is_in_background`] that this process is a keeper.
pub(crate) fn is_of_front(group: Pid) {
    // Only tests start two keepers in a process.
    let _ = FRONT.set(group);
}

/// Whether the shell has put this command into the background of a terminal, where the user types something else. A terminal that this
/// session does not control has no background.
pub(crate) fn is_in_background(terminal: impl AsFd) -> bool {
    let group = FRONT.get().copied().unwrap_or_else(getpgrp);
    tcgetpgrp(terminal).is_ok_and(|front| front != group)
}

/// Lets this thread, and threads that it starts, write to the terminal from the background even with `stty tostop`: a process that
/// sends heartbeats must not be stopped for a notice.
pub(crate) fn write_unstopped() -> io::Result<()> {
    Ok(output_stop().thread_block()?)
}

/// Blocks the stop signals of the terminal for this thread and threads that it starts.
pub(crate) fn never_stop() -> io::Result<()> {
    let stops = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
    Ok(stops.into_iter().collect::<SigSet>().thread_block()?)
}

/// Starts a process with SIGTTOU unblocked, which it would inherit as blocked.
pub(crate) fn stoppable<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    with_mask(SigmaskHow::SIG_UNBLOCK, start)
}

/// Does something for which the kernel would stop a background process.
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
