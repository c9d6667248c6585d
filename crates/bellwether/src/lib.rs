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
//! A lock in a distributed system is advisory. A process that is paused may go on for a moment after its hold has ended;
//! it cannot know. [`Hold::lost`] tells in time whenever the process runs, and [`Hold::token`] lets the guarded resource
//! refuse a late writer: it rises from holder to holder, so whoever stores the highest token seen can turn away a
//! lower one, as [`Fence`] does.
//!
//! # Finding the way
//!
//! [`connect`] opens a session, the [`Client`]; a recipe is built from it and a path, and its verbs return guards, which
//! are smart pointers to a [`Hold`]. Without `async`, see [`blocking`].
//!
//! | recipe | what it is |
//! |---|---|
//! | [`Lock`] | one holder at a time, in the order of arrival |
//! | [`SimpleLock`] | one holder at a time, in no order: the plain form of the documents |
//! | [`Election`] | one leads, those who run follow in order, and anybody may watch |
//! | [`Barrier`] | everybody waits until it is lifted |
//! | [`DoubleBarrier`] | so many begin together and end together, round after round |
//! | [`Tasks`] | things to do once each, by name, by whoever is there |
//! | [`Queue`], [`PriorityQueue`], [`DelayQueue`] | items that stay until they are acknowledged, with attempts and dead letters |

mod access;
mod barrier;
pub mod blocking;
mod candidacy;
mod client;
mod clock;
mod connect;
mod contender;
mod crash_mark;
mod double_barrier;
mod election;
mod error;
mod fence;
mod fenced_write;
mod heart;
mod hold;
mod home;
mod janitor;
mod lock;
mod name;
mod node_event;
mod observe;
mod own_node;
mod path;
mod progress;
mod queue;
mod receipt;
mod round;
mod sabotage;
mod simple_lock;
mod tasks;
mod who;

pub use barrier::Barrier;
pub use candidacy::{Candidacy, Standing};
pub use client::Client;
pub use connect::{Connect, connect};
pub use crash_mark::{Crash, Previous};
pub use double_barrier::{DoubleBarrier, Inside, Members};
pub use election::{Badge, Candidate, Election, Leadership};
pub use error::{
    AcquireError, BarrierError, ClearError, ConnectError, ReleaseError, StandError, WriteError,
};
pub use fence::{Fence, StaleToken};
pub use fenced_write::FencedWrite;
pub use hold::{Hold, HoldState};
pub use lock::{Lock, LockGuard, Waiting};
pub use observe::Observe;
pub use path::PathError;
pub use progress::{Place, Progress};
pub use queue::{
    ByDueTime, ByPriority, Claim, Consumer, DeadLetter, DelayQueue, Depth, Fifo, ItemId, Json,
    Order, OrderedQueue, Payload, Peek, PriorityQueue, PutError, Queue, SettleError, TakeError,
};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use simple_lock::{SimpleGuard, SimpleLock};
pub use tasks::{Task, TaskCounts, TaskProgress, Tasks};
pub use who::Who;

/// The client library under this one: for its errors and lists of access, and for what no recipe covers.
pub use zookeeper_client as zk;
