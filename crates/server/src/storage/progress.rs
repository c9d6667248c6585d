//! Tells how far a long recovery is.

use std::time::{Duration, Instant};

/// Recoveries that take longer than this are told of, and then again each time it has passed.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far one part of a recovery is.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    file: &'a str,
    start: Instant,
    told: Instant,
    count: u64,
}

impl<'a> Progress<'a> {
    /// The start of reading `file`.
    pub(super) fn of(file: &'a str) -> Self {
        let now = Instant::now();
        Self {
            file,
            start: now,
            told: now,
            count: 0,
        }
    }

    /// One more node or transaction.
    pub(super) fn count(&mut self) {
        self.count += 1;
        // A look at the clock costs more than most of what is counted.
        if self.count.is_multiple_of(1024) && self.told.elapsed() > PATIENCE {
            self.told = Instant::now();
            tracing::warn!(file = self.file, done = self.count, elapsed = ?self.start.elapsed(), "recovering");
        }
    }
}
