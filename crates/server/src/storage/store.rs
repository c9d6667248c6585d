//! Opens the data of a server, in memory or in files.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Log;
use super::disk::{Disk, Folder, named};
use super::memory::{MemoryLog, MemoryStore};
use super::names::DataFile;
use super::recovery::{Recovered, RecoveryError, recover};
use crate::alarm::Alarm;
use crate::config::Config;
use crate::storage::log::writer::{LogWriter, Rolling};
#[cfg(feature = "simulation")]
use crate::storage::snapshot::snapshotter::SnapshotWork;
use crate::storage::snapshot::snapshotter::Snapshotter;
use crate::tree::Tree;

/// Subfolder of a data folder in which Apache keeps its files.
const VERSION_FOLDER: &str = "version-2";

/// Locked by the server that uses a folder. Apache ignores it.
const LOCK_FILE: &str = "bellwether.lock";

/// Log size at which a snapshot is due (Apache's `snapSizeLimitInKb`).
const LOG_BYTES_MAX: u64 = 4 << 30;

/// Location of the data.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// On [`Disk`]s that a test implements.
    Disks {
        snapshots: Arc<dyn Disk>,
        logs: Arc<dyn Disk>,
    },
    /// In folders.
    Folders { snapshots: PathBuf, logs: PathBuf },
}

impl Store {
    /// The location that `config` names.
    pub(crate) fn of(config: &Config) -> Self {
        match &config.data_dir {
            None => Self::Memory(MemoryStore::default()),
            Some(data) => Self::Folders {
                snapshots: data.clone(),
                logs: config.data_log_dir.clone().unwrap_or_else(|| data.clone()),
            },
        }
    }

    /// Recovers the data, and opens the log for further writes.
    ///
    /// `alarm` is raised on a later failure that the server cannot survive.
    pub(crate) fn open(
        self,
        config: &Config,
        alarm: &Alarm,
    ) -> Result<(Tree, Box<dyn Log>), RecoveryError> {
        match self {
            Self::Memory(store) => Ok((store.recover(), Box::new(MemoryLog::new(store)))),
            Self::Disks { snapshots, logs } => {
                open_disks(config, alarm, snapshots, logs, Vec::new())
            }
            Self::Folders { snapshots, logs } => {
                let opened = OpenFolders::open(snapshots, logs)?;
                let (snapshots, logs) = (Arc::new(opened.snapshots), Arc::new(opened.logs));
                open_disks(config, alarm, snapshots, logs, opened.locks)
            }
        }
    }
}

/// Folders locked for this process.
#[derive(Debug)]
pub(super) struct OpenFolders {
    pub(super) snapshots: Folder,
    pub(super) logs: Folder,
    pub(super) locks: Vec<File>,
}

impl OpenFolders {
    pub(super) fn open(snapshots: PathBuf, logs: PathBuf) -> Result<Self, RecoveryError> {
        let apart = snapshots != logs;
        let mut locks = vec![lock(&snapshots)?];
        if apart {
            locks.push(lock(&logs)?);
        }
        let snapshots = Folder::open(snapshots.join(VERSION_FOLDER))?;
        let logs = Folder::open(logs.join(VERSION_FOLDER))?;
        if apart {
            refuse_misplaced(&snapshots, |file| matches!(file, DataFile::Log(_)))?;
            refuse_misplaced(&logs, |file| matches!(file, DataFile::Snapshot(..)))?;
        }
        Ok(Self {
            snapshots,
            logs,
            locks,
        })
    }
}

fn open_disks(
    config: &Config,
    alarm: &Alarm,
    snapshots: Arc<dyn Disk>,
    logs: Arc<dyn Disk>,
    locks: Vec<File>,
) -> Result<(Tree, Box<dyn Log>), RecoveryError> {
    let recovered = recover_checked(&*snapshots, &*logs)?;
    let snapshotter = Snapshotter::start(alarm, snapshots, logs.clone(), config.snapshots_kept)?;
    Ok(open_log(config, recovered, logs, snapshotter, locks))
}

/// Opens disks without a thread for snapshots: the caller takes those that are due.
#[cfg(feature = "simulation")]
pub(crate) fn open_without_thread(
    config: &Config,
    snapshots: Arc<dyn Disk>,
    logs: Arc<dyn Disk>,
) -> Result<(Tree, Box<dyn Log>, SnapshotWork), RecoveryError> {
    let recovered = recover_checked(&*snapshots, &*logs)?;
    // Room for one: the snapshot that is due is taken later.
    let (snapshotter, work) = Snapshotter::new(1, snapshots, logs.clone(), config.snapshots_kept);
    let (tree, log) = open_log(config, recovered, logs, snapshotter, Vec::new());
    Ok((tree, log, work))
}

fn recover_checked(snapshots: &dyn Disk, logs: &dyn Disk) -> Result<Recovered, RecoveryError> {
    let recovered = recover(snapshots, logs)?;
    if recovered.digest_mismatches > 0 {
        tracing::error!(
            count = recovered.digest_mismatches,
            "digests in the data files differ from those of the tree; compare it with a copy"
        );
    }
    Ok(recovered)
}

/// Opens the log for writes after the recovered ones.
fn open_log(
    config: &Config,
    recovered: Recovered,
    logs: Arc<dyn Disk>,
    snapshotter: Snapshotter,
    locks: Vec<File>,
) -> (Tree, Box<dyn Log>) {
    if recovered.wants_snapshot {
        snapshotter.take_when_free(&recovered.tree);
    }
    let rolling = Rolling {
        txns: config.snap_count.max(2),
        bytes: LOG_BYTES_MAX,
    };
    let log = LogWriter::new(
        logs,
        config.log_preallocation_bytes,
        rolling,
        snapshotter,
        locks,
    );
    (recovered.tree, Box::new(log))
}

/// Creates a folder if needed, and locks it for this process.
fn lock(folder: &Path) -> Result<File, RecoveryError> {
    let path = Folder::open(folder)?.path().join(LOCK_FILE);
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&path).map_err(named(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RecoveryError::InUse {
            folder: folder.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Data files in the wrong one of the two folders would be ignored, and their data lost.
fn refuse_misplaced(
    folder: &Folder,
    wrong: impl Fn(DataFile) -> bool,
) -> Result<(), RecoveryError> {
    let found = folder
        .list()?
        .into_iter()
        .find(|name| DataFile::parse(name).is_some_and(&wrong));
    match found {
        None => Ok(()),
        Some(name) => Err(RecoveryError::Misplaced {
            file: folder.path().join(name),
        }),
    }
}
