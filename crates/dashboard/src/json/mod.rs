//! Results of a survey as JSON, for the pages and for `bellwether locks --json`.

mod acl;
mod people;
mod sights;

pub use acl::{acl, rights};
pub use people::{crash, data, entry, who};
pub use sights::{deadlocks, key, sight, transaction};

use std::time::SystemTime;

/// Formats a session id or zxid.
#[must_use]
pub fn hex(number: i64) -> String {
    format!("{number:#x}")
}

/// Milliseconds since 1970.
#[must_use]
pub fn ms(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
