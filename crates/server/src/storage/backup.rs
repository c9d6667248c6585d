//! Backup of one version of the tree to a file in Apache's format, and restore to a data folder.

use std::io;
use std::path::{Path, PathBuf};

use super::RecoveryError;
use super::disk::{Disk as _, Folder};
use super::names::{Compression, DataFile};
use super::snapshot::pace::Pace;
use super::snapshot::reader::{self, Snapshot, SnapshotError};
use super::snapshot::writer;
use super::store::OpenFolders;
use crate::clock;
use crate::session::lock_sessions;
use crate::tree::{Tree, zxid};

/// Summary of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Zxid of the last write in it.
    pub zxid: i64,
    /// Number of nodes.
    pub nodes: usize,
}

/// Summary of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// What was restored.
    pub backup: Backup,
    /// The last zxid before those that a server assigns next.
    pub continues_after: i64,
}

/// Why a backup or restore failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum BackupError {
    /// The disk failed, or the folder of the file does not exist.
    #[error("cannot write {}", file.display())]
    Write { file: PathBuf, source: io::Error },
    /// The file cannot be opened.
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// The file is not a snapshot, or was changed since it was written. Use another one.
    #[error("{} is not a valid backup", file.display())]
    Bad {
        file: PathBuf,
        source: SnapshotError,
    },
    /// The digest of the tree differs from the one in the file. Use another one.
    #[error("{} is not a valid backup: its digest does not match", file.display())]
    Digest { file: PathBuf },
    /// A snapshot of Apache that was taken while the tree changed, and is incomplete without the log after it.
    #[error("{} is incomplete: it lacks the access list of {path}", file.display())]
    NotWhole { file: PathBuf, path: String },
    /// A snapshot whose last zxid only its file name told: that of a server before 3.6, or of one that Apache wrote at a start. Rename the
    /// file to `snapshot.<zxid>` again.
    #[error("{} does not contain its last zxid, and its name is not that of a snapshot", file.display())]
    NoZxid { file: PathBuf },
    /// The folder contains data. Restore to an empty folder.
    #[error("{} has data already", folder.display())]
    NotEmpty { folder: PathBuf },
    /// The folder cannot be used.
    #[error("cannot restore to {}", folder.display())]
    Folder {
        folder: PathBuf,
        source: RecoveryError,
    },
}

/// Writes `tree` to `file` (renamed once it is complete and on disk), and reads it back to verify it. Blocks.
pub(crate) fn write(tree: &Tree, file: &Path) -> Result<Backup, BackupError> {
    let failed = |source| BackupError::Write {
        file: file.to_owned(),
        source,
    };
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    let disk = Folder::open(folder).map_err(failed)?;
    writer::write_as(&disk, name, tree, &mut Pace::hurried()).map_err(failed)?;
    let written = read(file)?;
    Ok(Backup {
        zxid: written.last_zxid(),
        nodes: written.node_count(),
    })
}

/// Restores a backup, or any complete snapshot of this server or Apache's, to the data folder `folder`, which must have no data. A server
/// started there continues from it. Blocks.
///
/// The server continues with higher zxids than any that were assigned before, also after the backup: a fencing token from the time after the
/// backup is not granted again, and clients that have seen later zxids can reconnect. The upper half of the zxid, the epoch, is the number of
/// hours since 1970. So the clock must not be set back between two restores.
///
/// Sessions are restored too, so that what they hold is not granted to others before their clients know that it is lost, and end by their
/// timeout. No client can resume them: one that did would believe in a lock that it acquired after the backup, whose node is gone. The folder
/// gets a new `session.key` for that; a backup contains no key.
pub fn restore(file: &Path, folder: &Path) -> Result<Restored, BackupError> {
    let mut tree = read(file)?;
    let failed = |source| BackupError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let opened = OpenFolders::open(folder.to_owned(), folder.to_owned()).map_err(failed)?;
    let disk = &opened.snapshots;
    let names = disk.list().map_err(|error| failed(error.into()))?;
    if names.iter().any(|name| DataFile::parse(name).is_some()) {
        return Err(BackupError::NotEmpty {
            folder: folder.to_owned(),
        });
    }
    let backup = Backup {
        zxid: tree.last_zxid(),
        nodes: tree.node_count(),
    };
    // Before the sessions are there: those of a folder without a key have Apache's passwords, which any client can compute.
    lock_sessions(folder).map_err(|error| failed(error.into()))?;
    let continues_after =
        continue_above(&mut tree, &opened).map_err(|error| failed(error.into()))?;
    Ok(Restored {
        backup,
        continues_after,
    })
}

/// Writes the snapshot from which a server continues, above everything that the backup and the folder know of.
fn continue_above(tree: &mut Tree, folders: &OpenFolders) -> io::Result<i64> {
    let mark = &folders.claim.mark;
    let used = mark.zxid()?.max(tree.last_zxid());
    tree.advance(zxid::continue_above(used, clock::wall_us()));
    writer::write(&folders.snapshots, tree, &mut Pace::hurried())?;
    mark.put(tree.last_zxid())?;
    Ok(tree.last_zxid())
}

/// Reads a snapshot regardless of its name, and verifies everything that can be verified.
fn read(file: &Path) -> Result<Tree, BackupError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let (named_zxid, packing) = match DataFile::parse(&name) {
        Some(DataFile::Snapshot(zxid, packing)) => (Some(zxid), packing),
        _ => (None, Compression::None),
    };
    let file = file.to_owned();
    let input = match std::fs::File::open(&file) {
        Ok(input) => input,
        Err(source) => return Err(BackupError::Read { file, source }),
    };
    let snapshot = match reader::read(Box::new(input), &name, packing, named_zxid.unwrap_or(0)) {
        Ok(snapshot) => snapshot,
        Err(source) => return Err(BackupError::Bad { file, source }),
    };
    let Snapshot {
        mut tree,
        digest,
        without_acl,
    } = snapshot;
    if let Some(path) = without_acl.first() {
        let path = path.to_string();
        return Err(BackupError::NotWhole { file, path });
    }
    match (digest, named_zxid) {
        (Some((zxid, digest)), _) if zxid > 0 => {
            if digest != tree.digest() {
                return Err(BackupError::Digest { file });
            }
            tree.advance(zxid.max(named_zxid.unwrap_or(0)));
        }
        // Without a digest, or with one of zeros, which Apache writes if it has processed nothing since its start.
        (_, Some(_)) => {}
        (Some(_), None) if tree.digest() == Tree::fresh().digest() => {}
        (_, None) => return Err(BackupError::NoZxid { file }),
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::access;
    use crate::tree::txn::{Lifetime, Txn, TxnBody};

    /// A tree whose last zxid is 5.
    fn tree() -> Tree {
        let mut tree = Tree::fresh();
        tree.apply(&Txn {
            session_id: 1,
            cxid: 1,
            zxid: 5,
            time_ms: 1,
            body: TxnBody::Create {
                path: "/a".into(),
                data: None,
                acl: access::open(),
                lifetime: Lifetime::Persistent,
                parent_cversion: 1,
            },
        });
        tree
    }

    /// Replaces the digest of a snapshot by zeros, as Apache writes it if it has processed nothing since its start.
    fn zero_digest(file: &Path) {
        let mut bytes = std::fs::read(file).unwrap();
        bytes.truncate(bytes.len() - 20 - 13);
        bytes.extend(0_i64.to_be_bytes());
        bytes.extend(2_i32.to_be_bytes());
        bytes.extend(0_i64.to_be_bytes());
        let seal = i64::from(adler2::adler32_slice(&bytes));
        bytes.extend(seal.to_be_bytes());
        bytes.extend(*b"\0\0\0\x01/");
        std::fs::write(file, bytes).unwrap();
    }

    #[test]
    fn zxid_of_a_snapshot_with_a_digest_of_zeros_is_in_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("snapshot.5");
        write(&tree(), &named).unwrap();
        zero_digest(&named);
        assert_eq!(read(&named).unwrap().last_zxid(), 5);
        let renamed = folder.path().join("backup");
        std::fs::rename(&named, &renamed).unwrap();
        let error = read(&renamed).unwrap_err();
        assert!(matches!(error, BackupError::NoZxid { .. }), "{error}");
    }

    #[test]
    fn a_backup_before_the_first_write_has_zxid_0() {
        let folder = tempfile::tempdir().unwrap();
        let written = write(&Tree::fresh(), &folder.path().join("backup")).unwrap();
        assert_eq!(written.zxid, 0);
    }
}
