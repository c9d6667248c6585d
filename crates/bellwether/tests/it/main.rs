//! The recipes, through the public API, on a real server.
//!
//! `BELLWETHER_TEST_APACHE` names the address of an Apache ZooKeeper; each test works in a chroot of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

mod lock;
mod lock_faults;
mod place;
mod proxy;
