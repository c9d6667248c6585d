//! Queues with at-least-once delivery: items stay until a consumer has acknowledged them.

pub(crate) mod core;
mod error;
mod look;
pub(crate) mod order;
mod put;
pub(crate) mod record;
pub(crate) mod take;
pub(crate) mod tasks;

pub use self::error::{PutError, SettleError, TakeError};
pub use self::look::dead_letter::DeadLetter;
pub use self::look::inspect::{Depth, Peek};
pub use self::look::listing::{Claimed, Listed};
pub use self::order::{ByDueTime, ByPriority, Fifo, ItemId, Order};
pub use self::take::claim::Claim;
pub use self::take::consumer::Consumer;
pub use self::tasks::{TaskCounts, TaskProgress};
pub use crate::node::data::{Payload, RecordedOrder};

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::join_all;

use crate::line::Failure;
use crate::queue::core::{QueueCore, taker_options};
use crate::session::client::Client;
use crate::session::telemetry::call;

pub(crate) use self::take::Empty;

/// How many items of a batch are claimed at once.
const TAKEN_TOGETHER: usize = 16;

/// A first-in, first-out queue; see [`OrderedQueue`].
pub type Queue<T = Vec<u8>> = OrderedQueue<Fifo, T>;

/// A queue whose items are taken by priority, the lowest number first; see [`OrderedQueue`].
pub type PriorityQueue<T = Vec<u8>> = OrderedQueue<ByPriority, T>;

/// A queue whose items are taken when they are due; see [`OrderedQueue`].
pub type DelayQueue<T = Vec<u8>> = OrderedQueue<ByDueTime, T>;

/// A queue with at-least-once delivery: items stay until a consumer has acknowledged them. It is a [`Queue`], a [`PriorityQueue`] or a
/// [`DelayQueue`].
///
/// A ZooKeeper queue is for thousands of small jobs, each worth a few writes with fsync: migrations, deployments, hosts to drain. It is not
/// a message broker: everything is in the memory of every server, and each item costs three writes.
///
/// # What it guarantees
///
/// An item whose put has returned is delivered until it is [acknowledged](Claim::ack), or becomes a [dead letter](Self::dead_letters) after
/// [`attempts_max`](Self::attempts_max) deliveries; an acknowledged item is never delivered again. A put takes effect exactly once even if
/// its reply is lost, or returns [`PutError::OutcomeUnknown`]. An item is claimed by one consumer at a time, and the fencing
/// [token](crate::Hold::token) of a claim is greater than that of every earlier claim of the item; a consumer whose claim has ended cannot
/// acknowledge it.
///
/// # What it does not
///
/// An item may be delivered more than once: its consumer may have died before it could acknowledge. Work on an item has to be idempotent,
/// or be [written](crate::Hold::write) under the claim.
///
/// # Node layout
///
/// Below the path: `items` (persistent nodes `item-<id>-<sequence>`; the first part is the priority, or the due time in
/// milliseconds, where there is one), `claims` (an ephemeral node of the same
/// name while an item is claimed), `returned` (why an item was given back, and until when), `dead`, `line` (consumers that wait) and
/// `receipts`. All are containers. The data of an
/// item is the payload and nothing else; the version of its node counts the attempts.
///
/// # Fairness
///
/// A take gets the first item that no other consumer has claimed. Only consumers that take at the same moment share the first items
/// without order: one that loses an item to another chooses its next 32 items at random among the first of equal rank, eight for each
/// other claim, at most 64. In a [`PriorityQueue`] and a [`DelayQueue`], a take considers every
/// item that was put or given back before it began. An item that is given back keeps its place; consumers of a [`Queue`] that have read
/// ahead may see it up to sixteen items later, consumers of the other two one item later if its consumer died. Consumers that wait for an
/// item are served in order of arrival, and an item wakes one of them.
///
/// The order belongs to the queue: the first put records it, and handles of another type are refused
/// ([`PutError::OtherOrder`], [`TakeError::OtherOrder`]).
///
/// # Session loss
///
/// A claim ends with its session, and [`lost`](crate::Hold::lost) resolves before another consumer can claim the item. A take that is under
/// way returns [`TakeError::SessionEnded`]; a [`Consumer`] continues in the next session, and reports the error.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Json, Queue};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Drain { host: String }
/// # async fn drain(host: &str) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Queue::<Json<Drain>>::new(client, "/hosts/to-drain");
/// queue.put(&Json(Drain { host: "db7".into() })).await?;
///
/// let claim = queue.take().await?;
/// // An error if the claim is lost: another consumer may have the item then.
/// match claim.run(drain(&claim.payload().0.host)).await? {
///     Ok(()) => claim.ack().await?,
///     Err(error) => claim.give_back(&error.to_string()).await?,
/// }
/// # Ok(()) }
/// ```
pub struct OrderedQueue<O, T = Vec<u8>> {
    core: QueueCore,
    kind: PhantomData<fn() -> (O, T)>,
}

impl<O: Order, T: Payload> OrderedQueue<O, T> {
    /// A queue at a path, of payloads of this type: bytes, [`String`], or [`Json`](crate::Json) of a type of your own. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self::of(QueueCore::new(client, path.into(), O::RULE))
    }
}

impl<O: Order, T> OrderedQueue<O, T> {
    fn of(core: QueueCore) -> Self {
        Self {
            core,
            kind: PhantomData,
        }
    }

    taker_options!();

    /// How often an item is delivered before it becomes a dead letter. 5 unless set; at least once.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.core.attempts_max = attempts_max.max(1);
        self
    }

    /// How many items there may be before a put is refused. 10,000 unless set, because clients of default settings refuse to list much more
    /// than 20,000. A producer checks the depth at every put when it is near the limit, and otherwise now and then, so several producers
    /// may exceed the limit by a tenth of the room that they saw.
    #[must_use]
    pub fn depth_max(mut self, depth_max: usize) -> Self {
        self.core.depth_max = depth_max;
        self
    }

    /// How many bytes an item may have. 64 KiB unless set; servers take no more than 1 MiB in one request.
    #[must_use]
    pub fn item_bytes_max(mut self, item_bytes_max: usize) -> Self {
        self.core.item_bytes_max = item_bytes_max;
        self
    }

    pub(crate) fn client(&self) -> &Client {
        self.core.client()
    }

    /// The shelf in the current session.
    async fn core(&self) -> Result<QueueCore, TakeError> {
        Ok(self.core.now().await?)
    }

    fn error(&self, failure: Failure) -> TakeError {
        TakeError::new(failure, self.path())
    }
}

impl<O: Order, T: Payload> OrderedQueue<O, T> {
    /// Claims the next item, and waits in line for one if there is none. With a cached list that is one round trip, and the acknowledgement
    /// another; in a [`PriorityQueue`] and a [`DelayQueue`] a list is valid until something is put.
    ///
    /// An item that cannot be decoded becomes a dead letter.
    ///
    /// # Errors
    ///
    /// See [`TakeError`]; never [`TakeError::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. An item that was being claimed is delivered again, and the attempt counts.
    pub async fn take(&self) -> Result<Claim<T>, TakeError> {
        call!("queue.take", self.path())
            .hold(self.take_untraced())
            .await
    }

    async fn take_untraced(&self) -> Result<Claim<T>, TakeError> {
        let core = self.core().await?;
        loop {
            let held = core.take(Empty::Waits).await;
            if let Some(held) = held.map_err(|failure| self.error(failure))?
                && let Some((held, payload)) = held.open().await
            {
                return Ok(Claim::new(held, payload));
            }
        }
    }

    /// As [`take`](Self::take), but gives up after a time.
    ///
    /// # Errors
    ///
    /// [`TakeError::TimedOut`] when the limit has passed; else as [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take); the same holds when the limit has passed.
    pub async fn take_timeout(&self, limit: Duration) -> Result<Claim<T>, TakeError> {
        call!("queue.take", self.path())
            .hold(async {
                let late = || TakeError::TimedOut {
                    path: self.path().to_owned(),
                    limit,
                };
                let runtime = self.core.client().runtime();
                runtime.within(limit, self.take_untraced(), late).await
            })
            .await
    }

    /// Claims the next item if there is one.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// An item that was being claimed is delivered again, and the attempt counts.
    pub async fn try_take(&self) -> Result<Option<Claim<T>>, TakeError> {
        call!("queue.try_take", self.path())
            .try_hold(async {
                let core = self.core().await?;
                loop {
                    let held = core.try_take().await;
                    let Some(held) = held.map_err(|failure| self.error(failure))? else {
                        return Ok(None);
                    };
                    if let Some((held, payload)) = held.open().await {
                        return Ok(Some(Claim::new(held, payload)));
                    }
                }
            })
            .await
    }

    /// Claims up to `max` items at once, and waits in line if there is none: for work that is cheaper in batches. Each item has its own
    /// claim, which is acknowledged on its own, and may be [lost](crate::Hold::lost) while later ones are made. A `max` of 0 counts as 1.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take), for the first item. A later failure ends the batch, which is shorter then.
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take). Items that were claimed already are delivered again too.
    pub async fn take_many(&self, max: usize) -> Result<Vec<Claim<T>>, TakeError> {
        call!("queue.take_many", self.path())
            .run(async {
                let mut claims = vec![self.take().await?];
                while claims.len() < max {
                    let count = TAKEN_TOGETHER.min(max - claims.len());
                    let more = join_all((0..count).map(|_| self.try_take())).await;
                    let before = claims.len();
                    claims.extend(more.into_iter().filter_map(|taken| taken.ok().flatten()));
                    if claims.len() < before + count {
                        break;
                    }
                }
                Ok(claims)
            })
            .await
    }

    /// Takes one item after the other, as a stream. Each `next` is a [`take`](Self::take); several consumers of one queue can work at once.
    ///
    /// A consumer is for a worker that runs for as long as its process: it continues in the next session after a session expiry, and after
    /// transient errors. [`take`](Self::take) is for a single item, or for a loop that handles errors and sessions itself.
    #[must_use]
    pub fn consumer(&self) -> Consumer<T>
    where
        T: Send + 'static,
    {
        Consumer::of(self.clone())
    }
}

impl<O, T> Clone for OrderedQueue<O, T> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
            kind: PhantomData,
        }
    }
}

impl<O, T> fmt::Debug for OrderedQueue<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedQueue")
            .field("path", &self.core.path())
            .finish_non_exhaustive()
    }
}
