//! The server as a whole: start, housekeeping, shutdown.

mod builder;
#[cfg(test)]
pub(crate) mod core;
mod disk_watch;
mod expiry;
mod hooks;
mod inside;
mod memory;
mod metrics;
mod monitor;
mod readiness;
mod reaper;
mod reload;
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
pub use inside::Inside;
pub use monitor::Monitor;
pub use readiness::NotReady;
pub use server::Server;
pub use start::StartError;
