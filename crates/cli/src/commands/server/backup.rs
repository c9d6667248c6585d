//! Backups of a server that is running: by SIGUSR1, or by a request over HTTP.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use bellwether_server::Monitor;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Output;

/// Writes a backup to a new file in the folder. Returns what was written.
pub(crate) async fn write(server: &Monitor, folder: &Path) -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let file = folder.join(format!("backup-{}", now.unwrap_or_default().as_millis()));
    let backup = server.backup(&file).await;
    let backup = backup.context("cannot write a backup")?;
    Ok(format!(
        "backup of {} nodes as of write {:#x}: {}",
        backup.nodes,
        backup.zxid,
        file.display()
    ))
}

/// Writes a backup on each SIGUSR1. Returns only if that signal cannot be received.
pub(super) async fn write_on_signals(
    server: Monitor,
    folder: Option<PathBuf>,
    output: Output,
) -> anyhow::Error {
    let Some(folder) = folder else {
        return std::future::pending().await;
    };
    let mut asked = match signal(SignalKind::user_defined1()) {
        Ok(asked) => asked,
        Err(error) => return error.into(),
    };
    while asked.recv().await.is_some() {
        match write(&server, &folder).await {
            Ok(written) => output.notice(written),
            Err(error) => output.error(&error),
        }
    }
    std::future::pending().await
}
