//! Deletes data files that no recovery needs any more.

use std::io;

use super::disk::Disk;
use super::names::DataFile;

/// Keeps the newest `retain` snapshots, and every log that recovery from the oldest of them needs (`PurgeTxnLog`).
pub(crate) fn purge(snapshots: &dyn Disk, logs: &dyn Disk, retain: usize) -> io::Result<()> {
    let snapshot_names = snapshots.list()?;
    let mut zxids: Vec<i64> = snapshot_names
        .iter()
        .filter_map(|name| snapshot_zxid(name))
        .collect();
    zxids.sort_unstable_by(|a, b| b.cmp(a));
    let Some(oldest_kept) = zxids.get(retain.max(1) - 1).copied() else {
        return Ok(());
    };
    for name in snapshot_names
        .iter()
        .filter(|name| snapshot_zxid(name).is_some_and(|zxid| zxid < oldest_kept))
    {
        snapshots.remove(name)?;
    }
    let log_names = logs.list()?;
    // A log that begins before the snapshot may contain transactions after it.
    let first_needed = log_names
        .iter()
        .filter_map(|name| log_zxid(name))
        .filter(|zxid| *zxid <= oldest_kept)
        .max()
        .unwrap_or(oldest_kept);
    for name in log_names
        .iter()
        .filter(|name| log_zxid(name).is_some_and(|zxid| zxid < first_needed))
    {
        logs.remove(name)?;
    }
    Ok(())
}

fn snapshot_zxid(name: &str) -> Option<i64> {
    match DataFile::parse(name)? {
        DataFile::Snapshot(zxid, _) => Some(zxid),
        DataFile::Log(_) => None,
    }
}

fn log_zxid(name: &str) -> Option<i64> {
    match DataFile::parse(name)? {
        DataFile::Log(zxid) => Some(zxid),
        DataFile::Snapshot(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::Folder;

    #[test]
    fn what_the_oldest_kept_snapshot_needs_stays() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Folder::open(folder.path()).unwrap();
        for name in [
            "snapshot.0",
            "snapshot.a",
            "snapshot.14",
            "snapshot.1e",
            "log.1",
            "log.6",
            "log.b",
            "log.15",
            "myid",
        ] {
            disk.create(name).unwrap();
        }
        purge(&disk, &disk, 3).unwrap();
        let mut left = disk.list().unwrap();
        left.sort();
        assert_eq!(
            left,
            [
                "log.15",
                "log.6",
                "log.b",
                "myid",
                "snapshot.14",
                "snapshot.1e",
                "snapshot.a"
            ]
        );
    }
}
