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
use crate::tree::Tree;

/// Summary of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Zxid of the last write in it.
    pub zxid: i64,
    /// Number of nodes.
    pub nodes: usize,
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
/// Sessions are restored too, and expire unless their clients return.
pub fn restore(file: &Path, folder: &Path) -> Result<Backup, BackupError> {
    let tree = read(file)?;
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
    writer::write(disk, &tree, &mut Pace::hurried()).map_err(|error| failed(error.into()))?;
    Ok(Backup {
        zxid: tree.last_zxid(),
        nodes: tree.node_count(),
    })
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
        (Some((zxid, digest)), _) => {
            if zxid != 0 && digest != tree.digest() {
                return Err(BackupError::Digest { file });
            }
            tree.advance(zxid);
        }
        (None, Some(_)) => {}
        (None, None) => return Err(BackupError::NoZxid { file }),
    }
    Ok(tree)
}
