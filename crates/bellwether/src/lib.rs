//! Coordination recipes on the ZooKeeper protocol.
//!
//! Programs on one or many hosts agree on which of them acts: locks, leader election, barriers, queues, shared configuration. The servers
//! are a choice: the server of the `bellwether` command on one host, or an Apache ZooKeeper ensemble on several.
//!
//! ```no_run
//! use bellwether::{Lock, connect};
//!
//! # async fn nightly(token: bellwether::FencingToken) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = connect("127.0.0.1:2181").await?;
//! let lock = Lock::new(&client, "/jobs/nightly");
//!
//! let guard = lock.acquire().await?;
//! // Stops the work if the lock is lost.
//! guard.run(nightly(guard.token())).await??;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # What a hold is worth
//!
//! A lock in a distributed system is advisory. [`Hold::run`] stops the work before the servers can grant the next hold, as long as the
//! process runs, and after a pause before the work takes another step. A step that is paused half-way continues when the process wakes,
//! because it cannot know. For this case there is the fencing token, [`Hold::token`]: it rises from holder to holder, so a resource that
//! stores the highest token seen can refuse a late writer, as [`Fence`] does.
//!
//! # Finding the way
//!
//! [`connect`] returns a [`Client`], which outlives its sessions. A recipe is built from a client and a path. Its verbs return guards, which
//! are smart pointers to a [`Hold`] and end with the session in which they were acquired. [`Contention`](inspect::Contention) reads any
//! line from outside, and asks holders to release; [`Survey`](inspect::Survey) finds every recipe in use below a path. Without `async`, see
//! [`blocking`].
//!
//! For long-running programs, `docs/services.md` in the repository explains start, readiness, session expiry, shutdown, logging and tests;
//! `examples/services` has eight such programs. Each call is a span of the `tracing` crate, and waits, holds and losses are metrics of the
//! `metrics` crate, once the program installs a subscriber or a recorder.
//!
//! | recipe | what it is |
//! |---|---|
//! | [`Lock`] | one holder at a time, in order of arrival |
//! | [`RwLock`] | many readers or one writer, in one line |
//! | [`MultiLock`] | several locks at once, all or none |
//! | [`ReentrantLock`], [`ReentrantRwLock`] | re-entrant handles, which may acquire again what they hold |
//! | [`Semaphore`] | a number of permits, several at once, in order of arrival |
//! | [`SimpleLock`] | one holder at a time, in no order: the plain form in ZooKeeper's documentation |
//! | [`Election`] | one candidate leads, the others follow in order, and any client may observe |
//! | [`Barrier`] | a gate: all callers wait until it is lifted |
//! | [`DoubleBarrier`] | a fixed number of members begin together and end together, round after round |
//! | [`TwoPhase`] | two-phase commit: all sites apply a change, or none does |
//! | [`Tasks`] | named tasks, each done once, by any number of workers |
//! | [`Queue`], [`PriorityQueue`], [`DelayQueue`] | items that stay until they are acknowledged, with attempts and dead letters |
//! | [`Counter`] | a shared number; each addition takes effect exactly once |
//! | [`Config`], [`ConfigFolder`] | values that are watched, compared and set; several at once |
//! | [`Group`], [`Names`] | membership and service discovery; members return by themselves after a session expiry |
//! | [`Cache`] | a live copy of a subtree |

pub mod barrier;
pub mod blocking;
pub mod cache;
pub mod election;
pub mod error;
mod events;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod hold;
pub mod inspect;
pub mod line;
mod lock;
mod node;
pub mod queue;
mod request;
mod session;
pub mod state;
pub mod two_phase;

pub use barrier::Barrier;
pub use barrier::double::DoubleBarrier;
pub use cache::Cache;
pub use election::{Election, Leadership};
pub use error::{Error, ErrorKind};
pub use events::Events;
pub use hold::Guard;
pub use hold::fence::{Fence, FencingToken};
pub use hold::hold_watch::HoldWatch;
pub use hold::{Hold, HoldState};
pub use line::Waiting;
pub use lock::reentrant::{ReentrantGuard, ReentrantLock, ReentrantRwLock};
pub use lock::rwlock::{ReadGuard, RwLock, UpgradeError, WriteGuard};
pub use lock::semaphore::{Permit, Semaphore};
pub use lock::simple::{SimpleGuard, SimpleLock};
pub use lock::{Lock, LockGuard};
pub use lock::{MultiGuard, MultiLock};
pub use node::data::Json;
pub use node::data::Who;
pub use queue::tasks::{Task, Tasks};
pub use queue::{Claim, DelayQueue, PriorityQueue, Queue};
pub use session::client::SessionId;
pub use session::client::{Client, ClientState};
pub use session::client::{Connect, connect};
pub use state::config::Config;
pub use state::config::ConfigFolder;
pub use state::counter::Counter;
pub use state::group::{Group, Membership};
pub use state::names::Names;
pub use two_phase::TwoPhase;

/// The ZooKeeper client below this crate: its errors and access lists, and requests that no recipe covers.
pub use bellwether_client as zk;
