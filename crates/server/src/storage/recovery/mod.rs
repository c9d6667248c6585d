//! Recovers the tree after a shutdown or a crash.

mod digest_check;
mod newest_snapshot;
mod repair;

pub use repair::{Repair, RepairStep};

use std::io;
use std::path::PathBuf;

use self::digest_check::DigestCheck;
use self::newest_snapshot::{Loaded, check_reaches_snapshots};
use crate::storage::disk::Disk;
use crate::storage::epoch_files;
use crate::storage::log::last::LastLog;
use crate::storage::log::reader::{LogEnd, LogReader};
use crate::storage::names::{self, DataFile};
use crate::storage::progress::Progress;
use crate::storage::snapshot::pace::Pace;
use crate::storage::snapshot::writer as snapshot_writer;
use crate::tree::{Tree, zxid};

/// Why a server does not start from its data files. No acknowledged write has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum RecoveryError {
    /// The disk failed, or a snapshot that the start requires could not be written.
    #[error("cannot read or write the data files")]
    Disk(#[from] io::Error),
    /// Another server uses the folder. Stop that server, or choose another folder.
    #[error("{} is in use by another server", folder.display())]
    InUse { folder: PathBuf },
    /// Snapshots and logs have folders of their own, and this file is in the wrong one. Move it.
    #[error("{} is in the wrong one of the two folders", file.display())]
    Misplaced { file: PathBuf },
    /// There are snapshots, but none is usable. Restore one from a copy.
    #[error("none of the {count} snapshots can be used")]
    NoGoodSnapshot { count: usize },
    /// There are logs but no snapshot to start from. Restore one from a copy. If there never was one, an empty server would lose what the
    /// logs hold.
    #[error("there are logs but no snapshot")]
    NoSnapshot,
    /// Acknowledged transactions are missing or unreadable. Restore the file from a copy, or remove what follows with a repair.
    #[error("{file} is damaged at offset {offset}: {why}")]
    Damaged {
        file: String,
        offset: u64,
        why: &'static str,
    },
    /// A log is missing before another log, or before an unusable snapshot. Restore it from a copy, or remove what follows with a repair.
    #[error("transactions {from:#x} to {to:#x} are missing before {file}")]
    Gap { file: String, from: i64, to: i64 },
    /// The access list of a node is missing in the snapshot, in the logs and in all earlier snapshots. Restore another snapshot, with the
    /// logs after it, from a copy.
    #[error("the access list of {path} is not in the snapshot and not in the logs")]
    NoAccessList { path: String },
    /// The next zxids would be negative. Only a file with a wrong name leads there. Restore the files from a copy.
    #[error("{zxid:#x} is too high a zxid to continue from")]
    NoMoreZxids { zxid: i64 },
}

/// Result of a recovery.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) tree: Tree,
    /// Whether a new snapshot should be written, because the newest one lacks transactions.
    pub(crate) wants_snapshot: bool,
    /// Number of digests in the files that differ from those of the tree.
    pub(crate) digest_mismatches: u64,
}

/// Recovers the tree: loads the newest usable snapshot, then replays the logs after it.
///
/// Changes no valid record. Removes only the bytes after the last record of the last log, and leftovers of an interrupted start. If this is
/// interrupted, it can be repeated.
pub(crate) fn recover(snapshots: &dyn Disk, logs: &dyn Disk) -> Result<Recovered, RecoveryError> {
    remove_unfinished(snapshots)?;
    remove_unfinished(logs)?;
    let log_files = list_logs(logs)?;
    let Some(loaded) = newest_snapshot::load(snapshots, |tree, digests| {
        replay(logs, &log_files, tree, digests)
    })?
    else {
        if has_records(logs, &log_files)? {
            return Err(RecoveryError::NoSnapshot);
        }
        let tree = Tree::fresh();
        snapshot_writer::write(snapshots, &tree, &mut Pace::hurried())?;
        return Ok(Recovered {
            tree,
            wants_snapshot: false,
            digest_mismatches: 0,
        });
    };
    let Loaded {
        mut tree,
        snapshot_zxid,
        replayed: last_log,
        digest_mismatches,
    } = loaded;
    check_reaches_snapshots(snapshots, &tree)?;
    if zxid::epoch(tree.last_zxid()) >= zxid::EPOCH_MAX {
        let zxid = tree.last_zxid();
        return Err(RecoveryError::NoMoreZxids { zxid });
    }
    if let Some(last_log) = last_log {
        last_log.secure(logs, tree.last_zxid())?;
    }
    // A killed server may not have fsynced the folder.
    snapshots.sync_names()?;
    logs.sync_names()?;
    epoch_files::raise(snapshots, tree.last_zxid())?;
    let orphans = tree.remove_orphans();
    if orphans > 0 {
        tracing::warn!(
            orphans,
            "deleted ephemeral nodes of sessions that do not exist"
        );
        // No log contains this change: it must be on disk before a client can create such a node and get a reply.
        snapshot_writer::write(snapshots, &tree, &mut Pace::hurried())?;
    }
    let wants_snapshot = tree.last_zxid() > snapshot_zxid && orphans == 0;
    Ok(Recovered {
        tree,
        wants_snapshot,
        digest_mismatches,
    })
}

fn remove_unfinished(disk: &dyn Disk) -> io::Result<()> {
    for name in disk
        .list()?
        .iter()
        .filter(|name| names::is_unfinished(name))
    {
        disk.remove(name)?;
    }
    Ok(())
}

/// Logs in the order of their transactions.
fn list_logs(logs: &dyn Disk) -> io::Result<Vec<(i64, String)>> {
    let mut files: Vec<_> = logs
        .list()?
        .into_iter()
        .filter_map(|name| match DataFile::parse(&name)? {
            DataFile::Log(zxid) => Some((zxid, name)),
            DataFile::Snapshot(..) => None,
        })
        .collect();
    files.sort();
    Ok(files)
}

/// Whether the logs contain acknowledged writes, readable or not.
fn has_records(logs: &dyn Disk, files: &[(i64, String)]) -> io::Result<bool> {
    for (_, name) in files {
        let mut log = LogReader::open(logs.read(name)?)?;
        if log.next()?.is_some() || matches!(log.end(), LogEnd::Damaged { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies all transactions after `tree`, and fsyncs all logs but the last: a killed server may not have done so. The last log, which is
/// returned, needs more than an fsync.
fn replay(
    logs: &dyn Disk,
    files: &[(i64, String)],
    tree: &mut Tree,
    digests: &mut DigestCheck,
) -> Result<Option<LastLog>, RecoveryError> {
    let first = files
        .iter()
        .rposition(|(zxid, _)| *zxid <= tree.last_zxid())
        .unwrap_or(0);
    let mut bad_end: Option<(&str, LogEnd)> = None;
    let mut last_log = None;
    for (index, (_, name)) in files.iter().enumerate().skip(first) {
        let mut log = LogReader::open(logs.read(name)?)?;
        let mut progress = Progress::of(name);
        let mut is_first = true;
        let zxid_before = tree.last_zxid();
        while let Some(record) = log.next()? {
            progress.count();
            // Between two valid records of one file nothing is missing: Apache uses up a zxid without a record for some malformed requests.
            let may_be_gap = std::mem::take(&mut is_first) || bad_end.is_some();
            let zxid = record.txn.zxid;
            if zxid <= tree.last_zxid() {
                continue;
            }
            if may_be_gap {
                check_gap(tree.last_zxid(), zxid, name, bad_end.take())?;
            }
            tree.apply(&record.txn);
            digests.after(name, record.digest, tree);
        }
        match log.end() {
            LogEnd::Clean => {}
            end if index + 1 < files.len() => bad_end = Some((name, end)),
            LogEnd::Torn { offset, why } => {
                tracing::warn!(
                    name,
                    offset,
                    why,
                    "the log has a torn end, which is dropped"
                );
            }
            LogEnd::Damaged { offset, why } => {
                return Err(RecoveryError::Damaged {
                    file: name.clone(),
                    offset,
                    why,
                });
            }
        }
        if index + 1 < files.len() {
            logs.sync(name)?;
        } else {
            last_log = Some(LastLog {
                name: name.clone(),
                good_bytes: log.good_bytes(),
                was_applied: tree.last_zxid() > zxid_before,
            });
        }
    }
    // No later record proves that nothing is missing.
    if let Some((name, end)) = bad_end {
        return Err(damaged(name, &end));
    }
    Ok(last_log)
}

/// Refuses to continue from `last` to `next` if transactions between them are missing. A bad end of the previous file is harmless if none
/// is: Apache leaves the torn end of a crash in place, even that of a leader that was replaced.
fn check_gap(
    last: i64,
    next: i64,
    name: &str,
    bad_end: Option<(&str, LogEnd)>,
) -> Result<(), RecoveryError> {
    // Every leader of an ensemble starts a new epoch, in which zxids count from zero.
    let new_epoch = zxid::epoch(next) > zxid::epoch(last);
    let is_damaged = matches!(bad_end, Some((_, LogEnd::Damaged { .. })));
    if next == last + 1 || new_epoch && !is_damaged {
        return Ok(());
    }
    match bad_end {
        Some((file, end)) => Err(damaged(file, &end)),
        None => Err(RecoveryError::Gap {
            file: name.to_owned(),
            from: last + 1,
            to: next - 1,
        }),
    }
}

fn damaged(file: &str, end: &LogEnd) -> RecoveryError {
    let (offset, why) = match end {
        LogEnd::Torn { offset, why } | LogEnd::Damaged { offset, why } => (*offset, *why),
        LogEnd::Clean => (0, "nothing is wrong"),
    };
    RecoveryError::Damaged {
        file: file.to_owned(),
        offset,
        why,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use bytes::BytesMut;
    use tempfile::TempDir;

    use super::*;
    use crate::storage::disk::Folder;
    use crate::storage::log::record;
    use crate::tree::access;
    use crate::tree::txn::{Lifetime, Txn, TxnBody};

    /// Length of each record.
    const RECORD_BYTES: usize = 61;

    /// A folder with the snapshot of a new tree and logs of transactions with these zxids.
    pub(in crate::storage) fn folder(logs: &[Vec<i64>]) -> (TempDir, Folder) {
        let folder = tempfile::tempdir().unwrap();
        let disk = Folder::open(folder.path()).unwrap();
        snapshot_writer::write(&disk, &Tree::fresh(), &mut Pace::hurried()).unwrap();
        for zxids in logs {
            let with_body = |zxid: &i64| (*zxid, TxnBody::CreateSession { timeout_ms: 1000 });
            write_log(&disk, &zxids.iter().map(with_body).collect::<Vec<_>>());
        }
        (folder, disk)
    }

    pub(in crate::storage) fn write_log(disk: &Folder, txns: &[(i64, TxnBody)]) {
        write_log_with(disk, txns, |_| Some(0));
    }

    /// Like [`write_log`], with the digests of these zxids.
    fn write_log_with(disk: &Folder, txns: &[(i64, TxnBody)], digest: impl Fn(i64) -> Option<u64>) {
        let mut bytes = BytesMut::from(&record::HEADER[..]);
        for (zxid, body) in txns {
            let txn = Txn {
                session_id: *zxid,
                cxid: 0,
                zxid: *zxid,
                time_ms: 1,
                body: body.clone(),
            };
            record::put(&mut bytes, &txn, digest(*zxid));
        }
        let mut file = disk.create(&names::log(txns[0].0)).unwrap();
        file.write_all(&bytes).unwrap();
        file.reserve(4096).unwrap();
    }

    /// Changes the last record of a log.
    fn change_last(folder: &TempDir, name: &str, change: impl FnOnce(&mut [u8])) {
        let path = folder.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        change(&mut bytes[end - RECORD_BYTES..end]);
        std::fs::write(path, bytes).unwrap();
    }

    fn recovered_zxid(disk: &Folder) -> Result<i64, RecoveryError> {
        recover(disk, disk).map(|recovered| recovered.tree.last_zxid())
    }

    #[test]
    fn what_takes_the_place_of_an_orphan_is_not_taken_for_it() {
        let create = |lifetime| TxnBody::Create {
            path: "/x".into(),
            data: None,
            acl: access::open(),
            lifetime,
            parent_cversion: 1,
        };
        let (_folder, disk) = folder(&[]);
        write_log(&disk, &[(1, create(Lifetime::Ephemeral))]);
        let recovered = recover(&disk, &disk).unwrap();
        assert!(recovered.tree.get("/x").is_none());
        // State after a kill: nothing but this is written.
        write_log(&disk, &[(2, create(Lifetime::Persistent))]);
        let recovered = recover(&disk, &disk).unwrap();
        assert!(recovered.tree.get("/x").is_some());
    }

    #[test]
    fn a_zxid_may_be_missing_within_a_file_and_not_between_two() {
        let (_folder, disk) = folder(&[vec![1, 2, 4], vec![5, 8]]);
        assert_eq!(recovered_zxid(&disk).unwrap(), 8);
        let (_folder, disk) = folder(&[vec![1, 2], vec![4]]);
        let error = recovered_zxid(&disk).unwrap_err();
        assert!(
            matches!(error, RecoveryError::Gap { from: 3, to: 3, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_new_epoch_may_follow_a_torn_end_and_no_damaged_one() {
        const EPOCH: i64 = 1 << 32;
        let logs = [
            vec![EPOCH + 1, EPOCH + 2, EPOCH + 3],
            vec![2 * EPOCH + 1, 2 * EPOCH + 2],
        ];
        let first = "log.100000001";
        let (torn, disk) = folder(&logs);
        change_last(&torn, first, |record| record[30..].fill(0));
        assert_eq!(recovered_zxid(&disk).unwrap(), 2 * EPOCH + 2);

        let (damaged, disk) = folder(&logs);
        change_last(&damaged, first, |record| record[30] ^= 0x10);
        let error = recovered_zxid(&disk).unwrap_err();
        assert!(matches!(error, RecoveryError::Damaged { .. }), "{error}");
    }

    /// Digest of a new tree in which only sessions have been opened.
    const FRESH: u64 = 1_371_985_504;

    fn sessions(zxids: std::ops::Range<i64>) -> Vec<(i64, TxnBody)> {
        let opened = |zxid| (zxid, TxnBody::CreateSession { timeout_ms: 1000 });
        zxids.map(opened).collect()
    }

    #[test]
    fn digests_of_the_log_are_compared_where_there_are_some() {
        for (wrong, expected) in [(0, 0), (2, 1), (3, 0)] {
            let (_folder, disk) = folder(&[]);
            // The third has none.
            write_log_with(&disk, &sessions(1..5), |zxid| {
                (zxid != 3).then_some(FRESH + u64::from(zxid == wrong))
            });
            let recovered = recover(&disk, &disk).unwrap();
            assert_eq!(recovered.digest_mismatches, expected, "{wrong} is wrong");
            assert_eq!(recovered.tree.last_zxid(), 4);
        }
    }

    /// A snapshot begun at zxid 1 with the digest of zxid 3, as Apache may write it.
    #[test]
    fn digests_are_compared_from_the_one_of_the_snapshot_on() {
        for (of_snapshot, expected) in [(FRESH, 1), (FRESH + 1, 2)] {
            let (folder, disk) = folder(&[]);
            let mut tree = Tree::fresh();
            tree.advance(1);
            snapshot_writer::write(&disk, &tree, &mut Pace::hurried()).unwrap();
            let path = folder.path().join("snapshot.1");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.truncate(bytes.len() - 20 - 13);
            bytes.extend(3_i64.to_be_bytes());
            bytes.extend(2_i32.to_be_bytes());
            bytes.extend(of_snapshot.to_be_bytes());
            let seal = i64::from(adler2::adler32_slice(&bytes));
            bytes.extend(seal.to_be_bytes());
            bytes.extend(*b"\0\0\0\x01/");
            std::fs::write(path, bytes).unwrap();
            // The digest of zxid 2 is not compared, that of zxid 4 is.
            write_log_with(&disk, &sessions(1..5), |_| Some(0));
            let recovered = recover(&disk, &disk).unwrap();
            assert_eq!(recovered.digest_mismatches, expected);
        }
    }

    #[test]
    fn a_snapshot_whose_digest_was_changed_is_passed_over() {
        let (folder, disk) = folder(&[vec![1, 2]]);
        let tree = recover(&disk, &disk).unwrap().tree;
        snapshot_writer::write(&disk, &tree, &mut Pace::hurried()).unwrap();
        let path = folder.path().join("snapshot.2");
        let mut bytes = std::fs::read(&path).unwrap();
        let end = bytes.len();
        bytes[end - 14] ^= 1;
        std::fs::write(path, bytes).unwrap();
        std::fs::remove_file(folder.path().join("log.1")).unwrap();
        let error = recovered_zxid(&disk).unwrap_err();
        assert!(matches!(error, RecoveryError::Gap { to: 2, .. }), "{error}");
    }
}
