//! Times that nodes carry.

use std::time::{Duration, SystemTime};

use bellwether_client as zk;

/// The time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    zk::environment::epoch_ms()
}

/// When a node was created, by the clock of the servers.
pub(crate) fn created_at(stat: &zk::Stat) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default())
}
