//! The command that is run, in a process group of its own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, getpgid, getppid, kill_process_group};
use tokio::time::{Instant, timeout_at};

use crate::exit::Exit;
use crate::family::Family;
use crate::terminal::{self, Terminal};

/// A variable of a job's environment, with a value or without one.
pub(crate) type Variable = (&'static str, Option<OsString>);

/// A running job, with all that it has started.
#[derive(Debug)]
pub(crate) struct Job {
    group: Pid,
    family: Family,
    terminal: Option<Terminal>,
}

/// What has become of the command itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Ended(ExitStatus),
    /// Stopped, and whoever watches the terminal should know.
    Stopped,
}

impl Job {
    /// Starts a command with variables set or removed, in the foreground if the front is there. An error comes with the
    /// exit that it means.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[Variable],
        family: Family,
    ) -> Result<Self, (io::Error, Exit)> {
        let [program, arguments @ ..] = command else {
            return Err((io::Error::from(io::ErrorKind::InvalidInput), Exit::NotFound));
        };
        let terminal = getpgid(getppid()).ok().and_then(Terminal::of_front);
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let started = terminal::stoppable(|| command.spawn()).and_then(|started| started);
        let process = started.map_err(|error| {
            let exit = if error.kind() == io::ErrorKind::NotFound {
                Exit::NotFound
            } else {
                Exit::NotRunnable
            };
            (error, exit)
        })?;
        let job = Self {
            group: Pid::from_child(&process),
            family,
            terminal,
        };
        if let Some(terminal) = &job.terminal {
            terminal.lend(job.group);
        }
        Ok(job)
    }

    /// The process group, whose number is that of the command itself.
    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Waits until the command itself has ended or was stopped. Cancel safe.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            let (process, status) = self.family.changed().await?;
            if process != self.group {
                continue;
            }
            match status.stopping_signal().map(Signal::from_named_raw) {
                None => {
                    // There may be another job after this one.
                    if let Some(terminal) = &self.terminal {
                        terminal.take_back(self.group);
                    }
                    return Ok(Change::Ended(ExitStatus::from_raw(status.as_raw())));
                }
                Some(signal) => {
                    if self.is_to_stay_stopped(signal) {
                        return Ok(Change::Stopped);
                    }
                }
            }
        }
    }

    /// Sends a signal to the command and to those that it has started and that have stayed in its group.
    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::CONT
            && let Some(terminal) = &self.terminal
        {
            terminal.lend(self.group);
        }
        // The only error is that nobody is left.
        let _ = kill_process_group(self.group, signal);
    }

    /// Ends all of it: SIGTERM for the group, and SIGKILL for every descendant that is left at the deadline.
    pub(crate) async fn stop(mut self, deadline: Instant) -> io::Result<()> {
        self.signal(Signal::TERM);
        // One that is stopped would not see it.
        self.signal(Signal::CONT);
        let ended = timeout_at(deadline, async {
            while !matches!(self.changed().await?, Change::Ended(_)) {}
            self.family.none_left().await
        });
        match ended.await {
            Ok(ended) => ended,
            Err(_) => self.kill().await,
        }
    }

    /// Kills all of it.
    pub(crate) async fn kill(mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        self.family.kill_all().await
    }

    /// Whether the command stays stopped. One that was started with the terminal in the background and brought to the
    /// front later is stopped when it reads, because the shell knows the group of the front only: it gets the terminal
    /// then and goes on. Without a terminal, only who stopped it knows when it shall go on.
    fn is_to_stay_stopped(&self, signal: Option<Signal>) -> bool {
        let Some(terminal) = &self.terminal else {
            return false;
        };
        let wants_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
        if wants_terminal && (terminal.is_with_front() || terminal.is_with(self.group)) {
            self.signal(Signal::CONT);
            return false;
        }
        true
    }
}
