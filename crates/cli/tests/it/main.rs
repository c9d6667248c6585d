//! The command, run as a process.
//!
//! The recipes' commands are tested twice: on `bellwether serve`, and on the Apache ZooKeeper that
//! `BELLWETHER_TEST_APACHE` names, in a chroot of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

#[macro_use]
mod bellwether;

mod crashes;
mod data_files;
mod doctor;
mod durability;
mod ensemble;
mod export;
mod hundred;
mod interchange;
mod jobs;
mod line;
mod live;
mod local;
mod lock;
mod locks;
mod manners;
mod nodes;
mod recipes;
mod screen;
mod scripts;
mod serve;
mod shared_locks;
mod terminal;
mod tour;
mod tx;
mod watch;
