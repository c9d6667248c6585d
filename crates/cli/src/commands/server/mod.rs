//! Commands that run a server, and show or convert its files.

mod advice;
pub(crate) mod backup;
mod data_file;
pub(crate) mod ensemble;
pub(crate) mod local;
pub(crate) mod log;
mod reload;
pub(crate) mod repair;
pub(crate) mod serve;
mod service_manager;
mod settings;
pub(crate) mod snapshot;
pub(crate) mod torture;
