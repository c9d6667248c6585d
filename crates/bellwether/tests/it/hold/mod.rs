//! Guarantees of a hold.

mod crash_mark;
mod ensemble;
mod exits;
mod lost;
mod meters;
mod paused;
mod quorum;
