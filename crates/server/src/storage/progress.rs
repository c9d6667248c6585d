//! Logs the progress of a long recovery.

use std::time::{Duration, Instant};

/// Interval of progress messages; shorter recoveries log none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress of one part of a recovery.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    file: &'a str,
    start: Instant,
    told: Instant,
    count: u64,
}

impl<'a> Progress<'a> {
    /// Starts with reading `file`.
    pub(super) fn of(file: &'a str) -> Self {
        let now = Instant::now();
        Self {
            file,
            start: now,
            told: now,
            count: 0,
        }
    }

    /// Counts one node or transaction.
    pub(super) fn count(&mut self) {
        self.count += 1;
        // Reading the clock costs more than most items.
        if self.count.is_multiple_of(1024) && self.told.elapsed() > PATIENCE {
            self.told = Instant::now();
            tracing::warn!(file = self.file, done = self.count, elapsed = ?self.start.elapsed(), "recovering");
        }
    }
}
