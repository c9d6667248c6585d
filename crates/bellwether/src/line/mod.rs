//! The line of contenders: sequential ephemeral nodes in one directory, each waiting for its turn.
//!
//! Locks, semaphores and elections share this engine.

pub(crate) mod contender;
pub(crate) mod failure;
pub(crate) mod limit;
pub(crate) mod name;
pub(crate) mod progress;
pub(crate) mod wait_queue;
pub(crate) mod waiting;

pub use name::Layout;
pub use progress::{Position, Progress};
pub use waiting::Waiting;
