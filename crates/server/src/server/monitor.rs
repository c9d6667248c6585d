//! Metrics and four-letter words, for code in the server's process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::metrics;
use super::readiness::{self, NotReady};
use crate::engine::Engine;
use crate::four_letter;
use crate::storage::{Backup, BackupError, write_backup};

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
        four_letter::tell(&self.engine, NO_CONNECTION, word, 0)
    }

    /// Resolves when the server carries out writes: a question has taken their way, from the queue to the publication. Waits as long as the
    /// server does not answer, so set a time limit.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    ///
    /// # Errors
    ///
    /// If the server stops, or if the disk of its log is full.
    pub async fn serves_writes(&self) -> Result<(), NotReady> {
        readiness::look(&self.engine).await
    }

    /// Notes whether a dashboard of this server can be read without a token, for metrics and `mntr`.
    pub fn note_open_dashboard(&self, is_open: bool) {
        let meters = &self.engine.stats.meters;
        meters.has_open_dashboard.store(is_open, Relaxed);
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
