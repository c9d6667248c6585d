//! The command, run as a process.
//!
//! Commands are tested twice: on an embedded server, and on a real Apache ZooKeeper, in a chroot of its own. The embedded one is
//! the local default that a user gets, or `bellwether serve` where a test goes to it by itself or disturbs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

#[macro_use]
mod bellwether;
#[macro_use]
mod servers;

mod answers;
mod crashes;
mod data_files;
mod doctor;
mod durability;
mod editing;
mod ensemble;
mod ensemble_outage;
mod examples;
mod export;
mod habits;
mod hundred;
mod interchange;
mod jobs;
mod line;
mod live;
mod local;
mod local_kills;
mod lock;
mod locks;
mod manners;
mod nodes;
mod other_libraries;
mod piped;
mod recipes;
mod refused;
mod screen;
mod scripts;
mod security;
mod serve;
mod shared_locks;
mod terminal;
mod thousand;
mod tour;
mod tx;
mod watch;
