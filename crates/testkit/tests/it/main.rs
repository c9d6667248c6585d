//! The kit against Debian's real ZooKeeper.
#![expect(clippy::unwrap_used, reason = "tests")]

mod apache;
mod engine;
mod ensemble;
mod model;
mod proxy;
mod raw;
