//! What everybody sees: the version that is on disk, and who is told when it changes.

mod published;
mod reads;
mod watch_table;
mod watches;

pub(crate) use published::Published;
pub(crate) use watches::WatchReport;
