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

mod barrier;
mod barrier_histories;
mod cache;
mod config;
mod contention;
mod counter;
mod counts;
mod crash_mark;
mod directories;
mod double_barrier;
mod dropping;
mod election;
mod ensemble;
mod ephemerals;
mod group;
mod histories;
mod hundred_writers;
mod interop;
mod lagging;
mod leaving;
mod lock;
mod lock_faults;
mod log;
mod lost;
mod multi_lock;
mod options;
mod order;
mod queue;
mod queue_counts;
mod queue_faults;
mod queue_histories;
mod recovery;
mod reentrant;
mod rwlock;
mod semaphore;
mod simple_lock;
mod state_counts;
mod state_histories;
mod survey;
mod tasks;
mod together_counts;
mod two_phase;
mod weather_settings;
