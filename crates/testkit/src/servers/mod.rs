//! Servers to test on: the embedded one, real Apache servers and ensembles, and what they need.

pub mod apache;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod embedded;
pub mod engine;
mod on_both_engines;
pub mod port;
