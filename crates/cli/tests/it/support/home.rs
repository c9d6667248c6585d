//! Folders for local servers. Dropping one ends everything that was started there.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::bellwether::{LOCAL_FOLDER, bellwether, text, until};

/// A user that is neither root nor has any files.
pub(crate) const NOBODY: u32 = 65534;

/// A folder for a separate local server, which is killed on drop.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The environment variable that makes a command use this server.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (LOCAL_FOLDER, self.folder())
    }

    pub(crate) fn bellwether(&self) -> Command {
        let mut command = bellwether();
        command.envs([self.variable()]);
        command
    }

    pub(crate) fn lock(&self, script: &str) -> Command {
        self.lock_at("/jobs/nightly", script)
    }

    pub(crate) fn lock_at(&self, path: &str, script: &str) -> Command {
        let mut command = self.bellwether();
        command.args(["lock", path, "--session-timeout", "4s", "--"]);
        command.args(["sh", "-c", script]);
        command
    }

    /// The folder of the server.
    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().join("local")
    }

    /// The process of the server that listens now.
    pub(crate) fn server(&self) -> Option<Pid> {
        server_at(&self.folder())
    }
}

pub(crate) fn server_at(folder: &Path) -> Option<Pid> {
    let server = UnixStream::connect(folder.join("socket")).ok()?;
    Some(socket_peercred(&server).unwrap().pid)
}

/// Killing the server is not enough: the keeper of a killed front is still closing its session, and would start the server again for that.
impl Drop for Home {
    fn drop(&mut self) {
        until_none_left(self.0.path(), |process| {
            // It may have ended since it was found.
            let _ = kill_process(process, Signal::KILL);
        });
    }
}

/// Calls `what_about` for each process that names a path, until there is none.
#[track_caller]
pub(crate) fn until_none_left(path: &Path, what_about: impl Fn(Pid)) {
    until("the processes of the test are gone", || {
        let left = processes_that_name(path);
        left.iter().copied().for_each(&what_about);
        left.is_empty()
    });
}

/// Processes with a path in their environment or command line, as commands of a [`Home`] and their servers have it.
pub(crate) fn processes_that_name(path: &Path) -> Vec<Pid> {
    let path = path.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap();
    let processes = processes.filter_map(|process| {
        let number = process.ok()?.file_name().to_str()?.parse().ok()?;
        Pid::from_raw(number)
    });
    // A process that has ended has neither.
    let has = |process: Pid, file: &str| {
        let file = std::fs::read(format!("/proc/{process}/{file}"));
        file.is_ok_and(|file| text(&file).contains(path))
    };
    processes
        .filter(|&process| has(process, "environ") || has(process, "cmdline"))
        .collect()
}
