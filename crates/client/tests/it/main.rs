//! The client, through its public API, on real servers.
//!
//! Tests of operations and events run twice: on an embedded server of their own, and on the Apache ZooKeeper that
//! `BELLWETHER_TEST_APACHE` names, in a chroot of their own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and prints the seed that it ran with"
)]

#[macro_use]
mod support;

mod comparison;
mod examples;
mod requests;
mod security;
mod session;
mod switches;
mod watches;
