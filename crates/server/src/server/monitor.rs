//! Metrics and four-letter words, for code in the server's process.

use std::path::PathBuf;
use std::sync::Arc;

use super::metrics;
use crate::engine::Engine;
use crate::storage::{Backup, BackupError, write_backup};
use crate::words;

/// Connection number of a caller that has no connection.
const NO_CONNECTION: u64 = 0;

/// Reads metrics and status of a running server from within its process.
#[derive(Debug, Clone)]
pub struct Monitor {
    engine: Arc<Engine>,
}

impl Monitor {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn metrics(&self) -> String {
        metrics::text(&self.engine)
    }

    /// Returns the answer to a four-letter word, such as `mntr`, even if clients may not send that word.
    pub fn word(&self, word: &str) -> String {
        words::tell(&self.engine, NO_CONNECTION, word, 0)
    }

    /// As [`Server::backup`](crate::Server::backup).
    ///
    /// # Cancel safety
    ///
    /// The file is written all the same.
    pub async fn backup(&self, file: impl Into<PathBuf>) -> Result<Backup, BackupError> {
        let (tree, file) = (self.engine.published.tree(), file.into());
        let written = tokio::task::spawn_blocking(move || write_backup(&tree, &file));
        written.await.expect("a backup does not panic")
    }
}
