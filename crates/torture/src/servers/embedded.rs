//! An embedded server in a process of its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bellwether_testkit::Port;
use bellwether_testkit::raw::four_letter_word;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval};

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(30);

/// Builds the command for a port and a data folder.
type MakeCommand = Box<dyn Fn(u16, &Path) -> Command + Send + Sync>;

/// An embedded server in a process of its own, with data in a temporary folder. Dropping it kills it.
pub struct Embedded {
    command: MakeCommand,
    port: Port,
    folder: TempDir,
    process: Option<Child>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("port", &self.port.number())
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// Starts a server. `command` builds the command for a port of the loopback and a data folder.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn spawn(
        command: impl Fn(u16, &Path) -> Command + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut server = Self {
            command: Box::new(command),
            port: Port::reserve()?,
            folder: tempfile::tempdir()?,
            process: None,
        };
        server.start().await?;
        Ok(server)
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Starts the server and waits until it answers.
    pub(super) async fn start(&mut self) -> Result<()> {
        let mut process = (self.command)(self.port.number(), &self.data())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a server")?;
        let deadline = Instant::now() + START_MAX;
        let mut turns = interval(Duration::from_millis(10));
        while !four_letter_word(self.address(), "ruok")
            .await
            .is_ok_and(|answer| answer == "imok")
        {
            turns.tick().await;
            if let Some(status) = process.try_wait()? {
                bail!("the server ended with {status}");
            }
            if Instant::now() >= deadline {
                bail!("the server does not answer within {START_MAX:?}");
            }
        }
        self.process = Some(process);
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().await?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}
