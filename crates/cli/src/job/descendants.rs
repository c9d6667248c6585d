//! The descendants of this process, including orphans, which it adopts (as a subreaper).

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, timeout_at};

use crate::local;
use crate::output::Output;

/// How often to look for descendants again, if no SIGCHLD arrives before.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long killed processes may take to end. One that hangs in the kernel may take longer, and nothing can be done about it.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// All descendants of this process, whatever process group or session they are in. Orphans become children of this process instead of
/// init.
#[derive(Debug)]
pub(crate) struct Descendants {
    changes: unix::Signal,
}

impl Descendants {
    /// Begins to adopt orphans. Call it before the first child is started.
    pub(crate) fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let changes = unix::signal(SignalKind::child())?;
        Ok(Self { changes })
    }

    /// The next child that has ended or stopped. Cancel safe.
    pub(crate) async fn changed(&mut self) -> io::Result<(Pid, WaitStatus)> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(change)) => return Ok(change),
                // Nothing yet, or there are no children.
                Ok(None) | Err(rustix::io::Errno::CHILD) => {
                    self.changes.recv().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there are no descendants. Cancel safe.
    pub(crate) async fn none_left(&mut self) -> io::Result<()> {
        while !children()?.is_empty() {
            self.look_again().await?;
        }
        Ok(())
    }

    /// Kills all descendants; returns when they are gone.
    ///
    /// Only children are killed; their own children then become children of this process. The pid of a child is not reused before this
    /// process has waited for it, so no other process is ever killed.
    pub(crate) async fn kill_all(&mut self) -> io::Result<()> {
        let limit = Instant::now() + KILL_LIMIT;
        loop {
            let children = children()?;
            if children.is_empty() {
                return Ok(());
            }
            for child in &children {
                // Fails only if this user may not signal the process; nothing can be done about that.
                let _ = kill_process(*child, Signal::KILL);
            }
            if Instant::now() >= limit {
                let children = children.iter().map(Pid::to_string).collect::<Vec<_>>();
                let error = anyhow::anyhow!(
                    "processes that do not end after SIGKILL: {}",
                    children.join(", ")
                );
                Output::new(true).error(&error);
                return Ok(());
            }
            self.look_again().await?;
        }
    }

    /// Waits a moment for a child to end, and reaps all that have ended.
    async fn look_again(&mut self) -> io::Result<()> {
        let mut look = Instant::now() + LOOK_EVERY;
        while let Ok(changed) = timeout_at(look, self.changed()).await {
            changed?;
            look = Instant::now();
        }
        Ok(())
    }
}

/// The children of this process, except a local server that it started.
fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw) else {
            continue;
        };
        // A process that ended meanwhile cannot be read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
            continue;
        };
        if parent(&stat) == Some(getpid()) && !local::is_server(process) {
            children.push(process);
        }
    }
    Ok(children)
}

/// Whether a process is stopped, as by Ctrl-Z.
pub(crate) fn is_stopped(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| state(&stat) == Some("T"))
}

/// The state in a line of `/proc/PID/stat`.
fn state(stat: &str) -> Option<&str> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    behind_name.split(' ').next()
}

/// The parent in a line of `/proc/PID/stat`: `PID (NAME) STATE PARENT …`. The name may contain any character.
fn parent(stat: &str) -> Option<Pid> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let parent = behind_name.split(' ').nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_found_behind_any_name() {
        let line = "17 (a) b (c) S 4 17 17 0 -1";
        assert_eq!(parent(line), Pid::from_raw(4));
        assert_eq!(parent("17 (cut"), None);
        assert_eq!(state(line), Some("S"));
    }

    #[test]
    fn own_parent_is_found() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parent(&stat), rustix::process::getppid());
    }
}
