//! Backups of a server that is running: by SIGUSR1, or by a request over HTTP.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use bellwether_server::files::{Disk as _, Folder};
use bellwether_server::{Config, Monitor};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Output;
use crate::output::refusal::Refusal;

const HINT: &str = "--backups is a folder that the user of the server can write to";

/// A file that is created and removed, to see whether the folder can be written to.
const PROBE: &str = "unfinished-backup";

/// Checks the folder of backups before a server starts, and creates it if it does not exist: the first backup may be urgent.
pub(super) fn check_folder(folder: &Path, config: &Config) -> anyhow::Result<()> {
    if folder.exists() && !folder.is_dir() {
        let what = format!("--backups {} is not a folder", folder.display());
        return Err(Refusal::usage(what).hint(HINT).into());
    }
    let place = real(folder)?;
    for data in [&config.data_dir, &config.data_log_dir]
        .into_iter()
        .flatten()
    {
        let data = real(data)?;
        if place == data || place.starts_with(data.join("version-2")) {
            let what = format!("--backups {} is the data folder", folder.display());
            let hint = "choose another folder, on another disk if there is one";
            return Err(Refusal::usage(what).hint(hint).into());
        }
    }
    let is_usable = Folder::open(folder).and_then(|opened| {
        opened.create(PROBE)?;
        opened.remove(PROBE)
    });
    is_usable.with_context(|| {
        let what = format!("cannot write backups to {}", folder.display());
        Refusal::failed(what).hint(HINT)
    })
}

/// The path without links. Its end need not exist.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let existing = path.ancestors().find(|ancestor| ancestor.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
    // Joining an empty rest would add a slash.
    Ok(fs::canonicalize(existing)?
        .components()
        .chain(rest.components())
        .collect())
}

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
