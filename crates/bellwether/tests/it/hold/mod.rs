//! Guarantees of a hold.

mod crash_mark;
mod ensemble;
mod exits;
mod heartbeat;
mod lost;
mod meters;
mod paused;
mod quorum;
