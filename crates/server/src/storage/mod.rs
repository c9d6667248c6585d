//! Storage of transactions: in memory, or in Apache's data files.

mod backup;
mod disk;
mod epoch_files;
mod high_mark;
pub(crate) mod log;
mod memory;
mod names;
mod progress;
mod recovery;
mod retention;
mod room;
mod snapshot;
mod store;
mod timed;

pub(crate) use backup::write as write_backup;
pub use backup::{Backup, BackupError, Restored, restore};
pub use disk::{Disk, DiskFile, Folder};
pub use log::{LogEnd, LogReader, LogRecord};
pub use memory::MemoryStore;
pub use recovery::{RecoveryError, Repair, RepairStep};
pub use room::DiskSpace;
pub(crate) use room::{DiskRoom, DiskState};
pub use snapshot::{SnapshotError, SnapshotNode, SnapshotReader};
pub(crate) use store::{OpenStore, Store};
pub(crate) use timed::TimedLog;
#[cfg(test)]
pub(crate) use timed::tests::SlowLog;
#[cfg(feature = "simulation")]
pub(crate) use {snapshot::snapshotter::SnapshotWork, store::open_without_thread};

use std::io;

use crate::tree::Tree;
use crate::tree::txn::Txn;

/// The write-ahead log. A write is neither published nor answered before `sync` returns.
pub(crate) trait Log: Send {
    /// Appends a transaction; `digest` is that of the tree after it.
    fn append(&mut self, txn: &Txn, digest: u64) -> io::Result<()>;

    /// Returns when the `txns` transactions appended since the last call are durable. `tree` is the version after the last of them.
    fn sync(&mut self, tree: &Tree, txns: usize) -> io::Result<()>;
}
