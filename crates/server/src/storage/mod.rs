//! Where transactions are kept.

mod memory;

pub(crate) use memory::MemoryLog;
pub use memory::MemoryStore;

use std::io;

use crate::proto::txn::Txn;
use crate::tree::Tree;

/// What stands between a decision and its being seen: nothing is answered before `sync` returns.
pub(crate) trait Log: Send {
    /// Adds a transaction behind the ones before.
    fn append(&mut self, txn: &Txn) -> io::Result<()>;

    /// Returns when all that was appended cannot be lost any more. `tree` is the version that the
    /// last of it made.
    fn sync(&mut self, tree: &Tree) -> io::Result<()>;
}
