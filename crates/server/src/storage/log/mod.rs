//! The write-ahead log.

pub(super) mod last;
pub(super) mod reader;
pub(crate) mod record;
mod txn;
pub(super) mod writer;

pub use reader::{LogEnd, LogReader, LogRecord};
