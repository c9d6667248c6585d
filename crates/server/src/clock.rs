//! Time in milliseconds, passed as an argument to the rest of the server.

#[cfg(feature = "simulation")]
use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A monotonic clock that starts with the server. tokio's clock is the system's, except where a test pauses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Milliseconds since the start.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Wall-clock time in milliseconds since 1970, for ctime and mtime of nodes.
pub(crate) fn wall_ms() -> i64 {
    #[cfg(feature = "simulation")]
    if let Some(time_of_day_ms) = TIME_OF_DAY_MS.get() {
        return time_of_day_ms();
    }
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

/// As [`wall_ms`], in microseconds, for zxids of a server that was set back.
pub(crate) fn wall_us() -> i64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(feature = "simulation")]
thread_local! {
    static TIME_OF_DAY_MS: Cell<Option<fn() -> i64>> = const { Cell::new(None) };
}

/// Sets the source of the time of day, in milliseconds since 1970, for servers on this thread.
#[cfg(feature = "simulation")]
pub fn set_time_of_day(time_of_day_ms: Option<fn() -> i64>) {
    TIME_OF_DAY_MS.set(time_of_day_ms);
}
