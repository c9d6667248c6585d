//! A log in memory, lost when the process ends.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use super::Log;
use crate::tree::Tree;
use crate::tree::txn::Txn;

/// Data of a server in memory. A later server that gets the same store continues where the earlier one stopped, sessions included.
#[derive(Clone, Default)]
pub struct MemoryStore {
    tree: Arc<Mutex<Option<Tree>>>,
    session_key: Arc<OnceLock<[u8; 32]>>,
}

impl MemoryStore {
    /// Where the key of session passwords is kept.
    pub(crate) fn session_key(&self) -> Arc<OnceLock<[u8; 32]>> {
        self.session_key.clone()
    }

    /// The stored tree, or a new one.
    pub(crate) fn recover(&self) -> Tree {
        self.lock().clone().unwrap_or_else(Tree::fresh)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Tree>> {
        self.tree.lock().expect("never panics inside")
    }
}

impl fmt::Debug for MemoryStore {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

/// Keeps the newest version; its transactions are not needed.
#[derive(Debug)]
pub(crate) struct MemoryLog {
    store: MemoryStore,
}

impl MemoryLog {
    pub(crate) fn new(store: MemoryStore) -> Self {
        Self { store }
    }
}

impl Log for MemoryLog {
    fn append(&mut self, _: &Txn, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self, tree: &Tree, _: usize) -> io::Result<()> {
        *self.store.lock() = Some(tree.clone());
        Ok(())
    }
}
