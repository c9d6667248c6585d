//! Commands that run a server, and show or convert its files.

mod advice;
pub(crate) mod backup;
pub(crate) mod ensemble;
pub(crate) mod local;
pub(crate) mod log;
pub(crate) mod repair;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod torture;
