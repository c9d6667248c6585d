//! The command, run as a process.
//!
//! Commands are tested twice: on an embedded server, and on a real Apache ZooKeeper, in a separate chroot. The embedded one is the local
//! default that a user gets, or `bellwether serve` where a test connects to it directly or disturbs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

#[macro_use]
mod support;

mod args;
mod connect;
mod coordinate;
mod doc_comments;
mod documents;
mod imports;
mod jobs;
mod local;
mod look;
mod nodes;
mod server;
mod type_names;
