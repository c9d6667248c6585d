//! The commands, one function each.

pub(crate) mod local;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod serve;
pub(crate) mod snapshot;
