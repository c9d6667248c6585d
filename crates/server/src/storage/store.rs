//! Opens the data of a server, in memory or in files.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Log;
use super::disk::{Disk, Folder, named};
use super::high_mark::HighMark;
use super::memory::{MemoryLog, MemoryStore};
use super::names::DataFile;
use super::recovery::{Recovered, RecoveryError, recover};
use super::room::{DiskRoom, is_full};
use crate::alarm::Alarm;
use crate::clock;
use crate::config::Config;
use crate::descriptors::Reserve;
use crate::storage::log::writer::{LogWriter, Rolling};
use crate::storage::snapshot::pace::Pace;
#[cfg(feature = "simulation")]
use crate::storage::snapshot::snapshotter::SnapshotWork;
use crate::storage::snapshot::snapshotter::{Keeping, Snapshotter};
use crate::storage::snapshot::writer as snapshot_writer;
use crate::tree::{Tree, zxid};

/// Subfolder of a data folder in which Apache keeps its files.
const VERSION_FOLDER: &str = "version-2";

/// Locked by the server that uses a folder. Apache ignores it.
pub(super) const LOCK_FILE: &str = "bellwether.lock";

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
    pub(crate) fn open(self, config: &Config, alarm: &Alarm) -> Result<OpenStore, RecoveryError> {
        match self {
            Self::Memory(store) => {
                let mut tree = store.recover();
                if config.new_epoch {
                    tree.advance(zxid::continue_above(tree.last_zxid(), clock::wall_us()));
                }
                Ok(OpenStore {
                    tree,
                    log: Box::new(MemoryLog::new(store)),
                    room: Arc::new(DiskRoom::unlimited()),
                })
            }
            Self::Disks { snapshots, logs } => open_disks(config, alarm, snapshots, logs, None),
            Self::Folders { snapshots, logs } => {
                let opened = OpenFolders::open(snapshots, logs)?;
                let reserve = Arc::new(Reserve::new()?);
                let snapshots = Arc::new(opened.snapshots.with_reserve(reserve.clone()));
                let logs = Arc::new(opened.logs.with_reserve(reserve));
                open_disks(config, alarm, snapshots, logs, Some(opened.claim))
            }
        }
    }
}

/// The data of a server.
pub(crate) struct OpenStore {
    pub(crate) tree: Tree,
    pub(crate) log: Box<dyn Log>,
    pub(crate) room: Arc<DiskRoom>,
}

/// Folders locked for this process.
#[derive(Debug)]
pub(super) struct OpenFolders {
    pub(super) snapshots: Folder,
    pub(super) logs: Folder,
    pub(super) claim: Claim,
}

/// What makes folders those of one server.
#[derive(Debug)]
pub(super) struct Claim {
    /// Lock files, which keep other servers from using the folders.
    _locks: Vec<File>,
    pub(super) mark: HighMark,
}

impl OpenFolders {
    pub(super) fn open(snapshots: PathBuf, logs: PathBuf) -> Result<Self, RecoveryError> {
        let apart = snapshots != logs;
        let mut locks = vec![lock(&snapshots)?];
        let mark = HighMark::of(Folder::open(&snapshots)?);
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
            claim: Claim {
                _locks: locks,
                mark,
            },
        })
    }

    /// See [`Claim::recover`].
    pub(super) fn recover(&self, new_epoch: bool) -> Result<Recovered, RecoveryError> {
        self.claim.recover(&self.snapshots, &self.logs, new_epoch)
    }
}

impl Claim {
    /// Recovers the tree. If the folders were set back, or if `new_epoch` asks for it, the tree continues at a higher zxid, of which a
    /// snapshot is written.
    fn recover(
        &self,
        snapshots: &dyn Disk,
        logs: &dyn Disk,
        new_epoch: bool,
    ) -> Result<Recovered, RecoveryError> {
        let mut recovered = recover_checked(snapshots, logs)?;
        let tree = &mut recovered.tree;
        if let Some(zxid) = self.mark.continue_after(tree.last_zxid(), new_epoch)? {
            tree.advance(zxid);
            snapshot_writer::write(snapshots, tree, &mut Pace::hurried())?;
            recovered.wants_snapshot = false;
        }
        self.mark.note(recovered.tree.last_zxid());
        Ok(recovered)
    }
}

fn open_disks(
    config: &Config,
    alarm: &Alarm,
    snapshots: Arc<dyn Disk>,
    logs: Arc<dyn Disk>,
    claim: Option<Claim>,
) -> Result<OpenStore, RecoveryError> {
    let (recovered, room) = recover_with_room(config, claim.as_ref(), &*snapshots, &logs)?;
    let snapshotter = Snapshotter::start(alarm, snapshots, logs.clone(), keeping(config))?;
    Ok(open_log(config, recovered, logs, snapshotter, room, claim))
}

fn keeping(config: &Config) -> Keeping {
    Keeping {
        snapshots: config.snapshots_kept,
        free_bytes: config.disk_free_bytes_min,
    }
}

/// Recovers the tree. On a full disk the reserve is given up if recovery needs space.
fn recover_with_room(
    config: &Config,
    claim: Option<&Claim>,
    snapshots: &dyn Disk,
    logs: &Arc<dyn Disk>,
) -> Result<(Recovered, Arc<DiskRoom>), RecoveryError> {
    let room = DiskRoom::of(logs.clone(), config.disk_free_bytes_min)?;
    let recover = || match claim {
        Some(claim) => claim.recover(snapshots, &**logs, config.new_epoch),
        None => recover_checked(snapshots, &**logs),
    };
    let recovered = match recover() {
        Err(RecoveryError::Disk(error)) if is_full(&error) && room.give_up_reserve() => recover()?,
        recovered => recovered?,
    };
    room.measure();
    Ok((recovered, Arc::new(room)))
}

/// Opens disks without a thread for snapshots: the caller takes those that are due.
#[cfg(feature = "simulation")]
pub(crate) fn open_without_thread(
    config: &Config,
    snapshots: Arc<dyn Disk>,
    logs: Arc<dyn Disk>,
) -> Result<(OpenStore, SnapshotWork), RecoveryError> {
    let (recovered, room) = recover_with_room(config, None, &*snapshots, &logs)?;
    // Room for one: the snapshot that is due is taken later.
    let (snapshotter, work) = Snapshotter::new(1, snapshots, logs.clone(), keeping(config));
    let opened = open_log(config, recovered, logs, snapshotter, room, None);
    Ok((opened, work))
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
    room: Arc<DiskRoom>,
    claim: Option<Claim>,
) -> OpenStore {
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
        room.clone(),
        claim,
    );
    OpenStore {
        tree: recovered.tree,
        log: Box::new(log),
        room,
    }
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
