//! Time, as the rest of the server gets it: in milliseconds, and handed in.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Counts from the start of the server and never goes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Milliseconds since the start.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// The time of day in milliseconds since 1970: what nodes show as their ctime and mtime.
pub(crate) fn wall_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}
