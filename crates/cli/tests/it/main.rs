//! The command, run as a process.
//!
//! `BELLWETHER_TEST_APACHE` names the address of an Apache ZooKeeper; each test works in a chroot of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

mod bellwether;
mod local;
mod lock;
mod serve;
