//! The command that is run, in a process group of its own.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{self, Command};
use tokio::time::Instant;

use crate::exit::Exit;

/// How often a group that is ending is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    group: Pid,
}

impl Child {
    /// Starts a command with variables added to its environment. An error comes with the exit that it means.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, String)],
    ) -> Result<Self, (io::Error, Exit)> {
        let [program, arguments @ ..] = command else {
            return Err((io::Error::from(io::ErrorKind::InvalidInput), Exit::NotFound));
        };
        let started = Command::new(program)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .spawn();
        let process = started.map_err(|error| {
            let exit = if error.kind() == io::ErrorKind::NotFound {
                Exit::NotFound
            } else {
                Exit::NotRunnable
            };
            (error, exit)
        })?;
        let group = process
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .expect("a process that was not waited for has an id");
        Ok(Self { process, group })
    }

    /// Waits for the end of the command itself. Cancel safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Sends a signal to the command and what it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        // The only error is that nobody is left.
        let _ = kill_process_group(self.group, signal);
    }

    /// Ends the whole group: SIGTERM, and SIGKILL for what is left after the grace.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<()> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + grace;
        // A process that was not waited for counts as one of the group.
        if tokio::time::timeout_at(deadline, self.wait()).await.is_ok() {
            while test_kill_process_group(self.group).is_ok() && Instant::now() < deadline {
                pause(LOOK_EVERY).await;
            }
        }
        if test_kill_process_group(self.group).is_ok() {
            self.signal(Signal::KILL);
        }
        self.wait().await.map(|_| ())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when a process group becomes empty"
)]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
