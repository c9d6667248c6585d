//! The local default.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::bellwether::{Running, assert_code, bellwether, text};

/// A state folder of its own, whose server is ended with it.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn lock(&self, script: &str) -> Command {
        let mut command = bellwether();
        command.env("XDG_STATE_HOME", self.0.path());
        command.args([
            "lock",
            "/jobs/nightly",
            "--session-timeout",
            "4s",
            "--",
            "sh",
            "-c",
            script,
        ]);
        command
    }

    /// The folder of the server.
    fn folder(&self) -> Option<PathBuf> {
        let mut hosts = std::fs::read_dir(self.0.path().join("bellwether")).ok()?;
        hosts.next().map(|host| host.unwrap().path())
    }

    fn server(&self) -> Option<Pid> {
        let pid = std::fs::read_to_string(self.folder()?.join("pid")).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(server) = self.server() else { return };
        // One that has ended already may have left its number to another process.
        let command = std::fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
        if text(&command).contains(&*self.0.path().to_string_lossy()) {
            let _ = kill_process(server, Signal::KILL);
        }
    }
}

#[test]
fn first_command_starts_a_server_and_the_next_one_uses_it() {
    let home = Home::new();
    let first = home.lock("echo ran").output().unwrap();
    assert_code(&first, 0);
    assert_eq!(text(&first.stdout), "ran\n");
    let notice = text(&first.stderr);
    assert!(
        notice.contains("other hosts and users are not excluded"),
        "{notice}"
    );
    assert_eq!(notice.lines().count(), 1, "{notice}");
    let server = home.server();
    assert!(server.is_some());
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_eq!(home.server(), server);
}

#[test]
fn connect_local_says_nothing() {
    let home = Home::new();
    let output = home
        .lock("true")
        .env("BELLWETHER_CONNECT", "local")
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn ten_racing_commands_get_one_server_and_exclude_each_other() {
    let home = Home::new();
    let busy = home.0.path().join("busy");
    let script = format!("mkdir {0} && rmdir {0}", busy.display());
    let mut all: Vec<_> = (0..10)
        .map(|_| Running::start(&mut home.lock(&script)))
        .collect();
    for one in &mut all {
        let code = one.code();
        assert_eq!(
            code,
            Some(0),
            "{:?}",
            std::iter::from_fn(|| one.error_line()).collect::<Vec<_>>()
        );
    }
    let starts = std::fs::read_to_string(home.folder().unwrap().join("log")).unwrap();
    assert!(!starts.contains("another server"), "{starts}");
}

#[test]
fn server_that_was_killed_is_replaced() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let dead = home.server().unwrap();
    kill_process(dead, Signal::KILL).unwrap();
    // Its port file is still there, and does not count.
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_ne!(home.server().unwrap(), dead);
}

#[test]
fn command_is_stopped_when_its_server_is_killed() {
    let home = Home::new();
    let mut job = home.lock("echo held; exec tail -f /dev/null");
    let mut job = Running::start(job.env("BELLWETHER_CONNECT", "local"));
    assert_eq!(job.line().as_deref(), Some("held"));
    kill_process(home.server().unwrap(), Signal::KILL).unwrap();
    let lost = job.error_line().unwrap();
    assert!(lost.contains("/jobs/nightly is lost"), "{lost}");
    assert_eq!(job.code(), Some(123));
    assert_eq!(job.line(), None);
}

#[test]
fn server_outlives_the_group_of_the_command_and_leaves_on_sigterm() {
    let home = Home::new();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    let server = home.server().unwrap();
    assert_eq!(rustix::process::getsid(Some(server)).unwrap(), server);
    job.signal(Signal::TERM);
    assert_eq!(job.code(), Some(143));
    kill_process(server, Signal::TERM).unwrap();
    until_gone(&home.folder().unwrap().join("port"));
}

#[test]
fn folder_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let folder = home.folder().unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
    let output = home.lock("true").output().unwrap();
    assert_code(&output, 125);
    assert!(
        text(&output.stderr).contains("0700"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn server_that_nobody_uses_leaves_and_the_next_command_starts_another() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let folder = home.folder().unwrap();
    kill_process(home.server().unwrap(), Signal::TERM).unwrap();
    until_gone(&folder.join("port"));
    let mut idle = bellwether();
    idle.args(["serve", "--idle-exit", "50ms", "--local"])
        .arg(&folder);
    assert_code(&idle.output().unwrap(), 0);
    assert!(!folder.join("port").exists());
    assert_code(&home.lock("true").output().unwrap(), 0);
}

/// Waits until a file is gone, up to a deadline.
#[expect(
    clippy::disallowed_methods,
    reason = "a look at another process's file, again and again up to a deadline"
)]
fn until_gone(file: &Path) {
    let start = std::time::Instant::now();
    while file.exists() {
        assert!(
            start.elapsed().as_secs() < 20,
            "{} is still there",
            file.display()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
