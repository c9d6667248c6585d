//! The commands, one function each.

pub(crate) mod lock;
pub(crate) mod serve;
