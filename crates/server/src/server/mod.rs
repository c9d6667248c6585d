//! The server as a whole: start, housekeeping, shutdown.

mod builder;
#[cfg(test)]
pub(crate) mod core;
mod expiry;
mod hooks;
mod metrics;
mod monitor;
mod reaper;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod server;
#[cfg(feature = "simulation")]
pub mod simulated;
mod start;

pub use builder::ServerBuilder;
pub use hooks::Hooks;
pub use monitor::Monitor;
pub use server::Server;
pub use start::StartError;
