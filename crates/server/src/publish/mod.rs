//! Publishes versions: readers see the newest one on disk, and clients get its replies and events.

mod events;
mod long_reads;
mod published;
mod pulse;
mod reads;
mod rearming;
mod recipients;
mod recursive;
mod watch_limits;
mod watch_table;
mod watches;

pub(crate) use published::Published;
pub(crate) use rearming::Rearming;
pub(crate) use watch_limits::WatchLimits;
