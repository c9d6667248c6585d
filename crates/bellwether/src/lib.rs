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
//! are smart pointers to a [`Hold`]. [`Contention`] looks at any line from outside, and asks holders to let go;
//! [`Survey`] finds all that goes on below a path. Without `async`, see [`blocking`].
//!
//! | recipe | what it is |
//! |---|---|
//! | [`Lock`] | one holder at a time, in the order of arrival |
//! | [`RwLock`] | many readers or one writer, in one line |
//! | [`MultiLock`] | several locks at once, all or none |
//! | [`ReentrantLock`], [`ReentrantRwLock`] | handles that may take again what they hold |
//! | [`Semaphore`] | a number of permits, several at once, in the order of arrival |
//! | [`SimpleLock`] | one holder at a time, in no order: the plain form of the documents |
//! | [`Election`] | one leads, those who run follow in order, and anybody may watch |
//! | [`Barrier`] | everybody waits until it is lifted |
//! | [`DoubleBarrier`] | so many begin together and end together, round after round |
//! | [`TwoPhase`] | several sites do something, or none of them does |
//! | [`Tasks`] | things to do once each, by name, by whoever is there |
//! | [`Queue`], [`PriorityQueue`], [`DelayQueue`] | items that stay until they are acknowledged, with attempts and dead letters |
//! | [`Counter`] | a number that many add to, each addition exactly once |
//! | [`Config`], [`ConfigFolder`] | values that are watched, compared and set; several at once |
//! | [`Group`], [`Names`] | who is there, and where: members and names that come back after a lost session |
//! | [`Cache`] | a live copy of a subtree |

mod access;
mod barrier;
pub mod blocking;
mod borne;
mod breaking;
mod cache;
mod candidacy;
mod catch_up;
mod client;
mod clock;
mod config;
mod config_folder;
mod connect;
mod contender;
mod contention;
mod counter;
mod crash_mark;
mod deadlock;
mod double_barrier;
mod election;
mod ephemerals;
mod error;
mod fence;
mod fenced_write;
mod group;
mod headed;
mod heart;
mod hold;
mod home;
mod janitor;
mod lease;
mod lock;
mod log;
mod multi_lock;
mod name;
mod names;
mod node_data;
mod node_event;
mod observe;
mod own_node;
mod path;
mod progress;
mod queue;
mod reason;
mod receipt;
mod recipe_mark;
mod reentrant;
mod request_size;
mod round;
mod rwlock;
mod sabotage;
mod semaphore;
mod simple_lock;
mod state;
mod successor;
mod survey;
mod tasks;
mod terms;
mod two_phase;
mod waiting;
mod who;

pub use barrier::Barrier;
pub use breaking::{Broken, Ending};
pub use cache::{Cache, CacheChanges, CacheEvent, CachedNode, LiveTree, Snapshot};
pub use candidacy::{Candidacy, Standing};
pub use client::Client;
pub use config::{Config, Entry, Version};
pub use config_folder::{ConfigFolder, Entries};
pub use connect::{Connect, connect};
pub use contention::{Contention, Contestant, Wants};
pub use counter::Counter;
pub use crash_mark::{Crash, Ended, Previous};
pub use deadlock::WaitsFor;
pub use double_barrier::{DoubleBarrier, Inside, Members};
pub use election::{Badge, Candidate, Election, Leadership};
pub use error::{
    AcquireError, BarrierError, ClearError, ConnectError, ContentionError, LimitError,
    ReleaseError, StandError, WriteError,
};
pub use fence::{Fence, StaleToken};
pub use fenced_write::FencedWrite;
pub use group::{Group, Membership, MembershipState, Roster};
pub use hold::{Hold, HoldState};
pub use lock::{Lock, LockGuard};
pub use multi_lock::{MultiGuard, MultiLock};
pub use name::Layout;
pub use names::{Instance, Names};
pub use node_data::Revocation;
pub use observe::Observe;
pub use path::PathError;
pub use progress::{Place, Progress};
pub use queue::{
    ByDueTime, ByPriority, Claim, Claimed, Consumer, DeadLetter, DelayQueue, Depth, Fifo, ItemId,
    Json, Listed, Order, OrderedQueue, Payload, Peek, PriorityQueue, PutError, Queue, SettleError,
    TakeError,
};
pub use reentrant::{ReentrantGuard, ReentrantLock, ReentrantRwLock};
pub use rwlock::{ReadGuard, RwLock, UpgradeError, WriteGuard};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use semaphore::{Permit, Semaphore};
pub use simple_lock::{SimpleGuard, SimpleLock};
pub use state::{Seen, StateError, Watch};
pub use survey::{Line, LineKind, Overview, QueueSight, Recipe, Sight, Survey};
pub use tasks::{Task, TaskCounts, TaskProgress, Tasks};
pub use two_phase::{
    Ballot, Coordinator, DeadSite, Decision, Form, Invitations, Participant, ParticipateError,
    Proposal, Seat, SiteStatus, Status, Transaction, TransactionError, TransactionProgress,
    TwoPhase, Vote,
};
pub use waiting::Waiting;
pub use who::Who;

/// The client library under this one: for its errors and lists of access, and for what no recipe covers.
pub use zookeeper_client as zk;
