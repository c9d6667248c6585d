//! Coordination recipes on the ZooKeeper protocol.
//!
//! Programs agree on who may go first. The engine behind the address is a choice: the server of the
//! `bellwether` command on one host, an Apache ZooKeeper ensemble on many.
//!
//! ```no_run
//! use bellwether::{Lock, connect};
//!
//! # async fn nightly(token: i64) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = connect("127.0.0.1:2181").await?;
//! let lock = Lock::new(&client, "/jobs/nightly");
//!
//! let guard = lock.acquire().await?;
//! tokio::select! {
//!     done = nightly(guard.token()) => done?,
//!     () = guard.lost() => return Err("the lock was lost, and the work stopped".into()),
//! }
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # What a hold is worth
//!
//! A lock in a distributed system is advisory. A process that is paused, or cut off, may go on for a moment
//! after its hold has ended; it cannot know. [`LockGuard::lost`] tells as early as this end can tell, and
//! [`LockGuard::token`] lets the guarded resource refuse a late writer: it rises from holder to holder, so
//! whoever stores the highest token seen can turn away a lower one.
//!
//! # Modules
//!
//! [`connect`] opens a session, the [`Client`]; [`Lock`] is built from it and a path.

mod contender;
mod error;
mod hold;
mod identity;
mod janitor;
mod lock;
mod path;
mod session;

pub use error::{AcquireError, ConnectError, ReleaseError};
pub use lock::{Lock, LockGuard};
pub use path::PathError;
pub use session::{Client, Connect, connect};

/// The client library under this one; its error is the source of some of ours.
pub use zookeeper_client;
