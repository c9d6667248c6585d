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
mod support;

mod barrier;
mod cache;
mod election;
mod errors;
mod hold;
mod inspect;
mod line;
mod lock;
mod queue;
mod services;
mod session;
mod state;
mod two_phase;
