//! Where transactions are kept: in memory, or in Apache's data files.

mod digest_check;
mod disk;
mod last_log;
mod log_reader;
pub(crate) mod log_record;
mod log_writer;
mod memory;
mod names;
mod newest_snapshot;
mod pace;
mod progress;
mod recovery;
mod repair;
mod retention;
mod snappy;
mod snapshot_reader;
mod snapshot_writer;
mod snapshotter;
mod store;

pub use disk::{Disk, DiskFile, Folder};
pub use log_reader::{LogEnd, LogReader, LogRecord};
pub use memory::MemoryStore;
pub use recovery::RecoveryError;
pub use repair::{Repair, RepairStep};
pub use snapshot_reader::{SnapshotError, SnapshotNode, SnapshotReader};
pub(crate) use store::Store;

use std::io;

use crate::proto::txn::Txn;
use crate::tree::Tree;

/// What stands between a decision and its being seen: nothing is answered before `sync` returns.
pub(crate) trait Log: Send {
    /// Adds a transaction behind the ones before; `digest` is that of the tree after it.
    fn append(&mut self, txn: &Txn, digest: u64) -> io::Result<()>;

    /// Returns when the `txns` that were appended since the last call cannot be lost any more. `tree`
    /// is the version that the last of them made.
    fn sync(&mut self, tree: &Tree, txns: usize) -> io::Result<()>;
}
