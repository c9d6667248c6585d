//! The process group of a job.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, getpgid, getppid, kill_process_group};
use tokio::time::{Instant, timeout_at};

use crate::exit::Exit;
use crate::job::birth;
use crate::job::descendants::Descendants;
use crate::job::link::ToJob;
use crate::job::terminal::{self, Terminal};

/// A variable of a job's environment; `None` removes it.
pub(crate) type Variable = (&'static str, Option<OsString>);

/// A running job, with all processes that it has started.
#[derive(Debug)]
pub(crate) struct Job {
    group: Pid,
    link: ToJob,
    descendants: Descendants,
    terminal: Option<Terminal>,
}

/// What happened to the command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobChange {
    Ended(ExitStatus),
    /// It could not be executed, which was reported. It has this exit code.
    NotStarted(Exit),
    /// Stopped; the shell should know.
    Stopped,
}

impl Job {
    /// Starts a command with variables set or removed, in the foreground if the front is there. A command that cannot be executed is a
    /// [change](Self::changed).
    pub(crate) fn start(
        command: &[OsString],
        variables: &[Variable],
        descendants: Descendants,
    ) -> io::Result<Self> {
        let terminal = getpgid(getppid()).ok().and_then(Terminal::of_front);
        let (link, stdin) = ToJob::carrying(io::stdin())?;
        let mut command = birth::command(command);
        command.stdin(stdin).process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let process = terminal::stoppable(|| command.spawn())??;
        let job = Self {
            group: Pid::from_child(&process),
            link,
            descendants,
            terminal,
        };
        if let Some(terminal) = &job.terminal {
            terminal.lend(job.group);
        }
        Ok(job)
    }

    /// The process group, whose id is the pid of the command.
    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Waits until the command ends or is stopped. Cancel safe.
    pub(crate) async fn changed(&mut self) -> io::Result<JobChange> {
        loop {
            let (process, status) = self.descendants.changed().await?;
            if process != self.group {
                continue;
            }
            match status.stopping_signal().map(Signal::from_named_raw) {
                None => {
                    // Another job may follow.
                    if let Some(terminal) = &self.terminal {
                        terminal.take_back(self.group);
                    }
                    let status = ExitStatus::from_raw(status.as_raw());
                    return Ok(match self.link.has_failed() {
                        false => JobChange::Ended(status),
                        true => JobChange::NotStarted(birth::failure(status)),
                    });
                }
                Some(signal) => {
                    if self.is_to_stay_stopped(signal) {
                        return Ok(JobChange::Stopped);
                    }
                }
            }
        }
    }

    /// Sends a signal to the process group of the command.
    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::CONT
            && let Some(terminal) = &self.terminal
        {
            terminal.lend(self.group);
        }
        // The only error is that the group is empty.
        let _ = kill_process_group(self.group, signal);
    }

    /// Ends the job: SIGTERM to the group, and at the deadline SIGKILL to all descendants.
    pub(crate) async fn stop(mut self, deadline: Instant) -> io::Result<()> {
        self.signal(Signal::TERM);
        // A stopped process would not handle SIGTERM.
        self.signal(Signal::CONT);
        let ended = timeout_at(deadline, async {
            while matches!(self.changed().await?, JobChange::Stopped) {}
            self.descendants.none_left().await
        });
        match ended.await {
            Ok(ended) => ended,
            Err(_) => self.kill().await,
        }
    }

    /// Kills all processes of the job.
    pub(crate) async fn kill(mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        self.descendants.kill_all().await
    }

    /// Whether the command stays stopped. A command that was started in the background, and whose front is in the foreground now, is
    /// stopped when it reads from the terminal, because the shell only knows the group of the front. It gets the terminal and is
    /// continued. Without a terminal, the process that stopped it has to continue it.
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
