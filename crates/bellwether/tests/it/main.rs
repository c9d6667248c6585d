//! The recipes, through the public API, on a real server.
//!
//! Each test runs twice: on an embedded server of its own, and on the Apache ZooKeeper that `BELLWETHER_TEST_APACHE`
//! names, in a chroot of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

#[macro_use]
mod place;

mod lock;
mod lock_faults;
mod proxy;
mod queue;
mod queue_faults;
