//! The commands, one function each, in the groups of `bellwether --help`.

pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod coordinate;
pub(crate) mod demo;
pub(crate) mod jobs;
pub(crate) mod look;
pub(crate) mod man;
pub(crate) mod nodes;
pub(crate) mod server;
