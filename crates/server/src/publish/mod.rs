//! What everybody sees: the version that is on disk, and who is told when it changes.

mod long_reads;
mod published;
mod reads;
mod watch_limits;
mod watch_table;
mod watches;

pub(crate) use published::Published;
pub(crate) use watch_limits::WatchLimits;
