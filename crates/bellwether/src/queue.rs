//! Queues: items that stay until somebody has acknowledged them.

mod claim;
mod consumer;
mod dead_letter;
mod error;
pub(crate) mod held;
mod inspect;
mod listing;
pub(crate) mod order;
mod payload;
mod put;
pub(crate) mod record;
pub(crate) mod shelf;
mod take;
mod warm;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bellwether_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::contender::Failure;

pub use claim::Claim;
pub use consumer::Consumer;
pub use dead_letter::DeadLetter;
pub use error::{PutError, SettleError, TakeError};
pub use inspect::{Depth, Peek};
pub use listing::{Claimed, Listed};
pub use order::{ByDueTime, ByPriority, Fifo, ItemId, Order};
pub use payload::{Json, Payload};

use self::shelf::{Shelf, taker_options};
pub(crate) use self::take::Empty;

/// A queue whose items are taken as they were put; see [`OrderedQueue`].
pub type Queue<T = Vec<u8>> = OrderedQueue<Fifo, T>;

/// A queue whose items are taken by a number, the lowest first; see [`OrderedQueue`].
pub type PriorityQueue<T = Vec<u8>> = OrderedQueue<ByPriority, T>;

/// A queue whose items are taken when they are due; see [`OrderedQueue`].
pub type DelayQueue<T = Vec<u8>> = OrderedQueue<ByDueTime, T>;

/// Items that stay until somebody has acknowledged them: a [`Queue`], a [`PriorityQueue`] or a [`DelayQueue`].
///
/// A ZooKeeper queue is for thousands of small things to do, each worth a few synced writes: migrations, deployments, hosts
/// to drain. It is not a message broker: everything is in the memory of every server, and each item costs three writes.
///
/// # What it guarantees
///
/// An item whose put has returned is delivered until it is [acknowledged](Claim::ack), or has been delivered in vain as often
/// as [allowed](Self::attempts_max) and become a [dead letter](Self::dead_letters); an acknowledged item is never delivered
/// again. A put is made once even if its reply is lost, or reports [`PutError::OutcomeUnknown`]. An item is claimed by one
/// consumer at a time, and its [token](crate::Hold::token) is greater than that of every claim of it before; who settles a
/// claim that is over is refused.
///
/// # What it does not
///
/// An item may be delivered more than once: its consumer may have died before it could acknowledge. Work on an item has to
/// be harmless twice, or be [written](crate::Hold::write) under the claim.
///
/// # Node layout
///
/// Below the path: `items` (persistent nodes `item-<id>-<sequence>`; the first part is the priority, or the due time in
/// milliseconds, where there is one; [shards](Self::shards) are directories in it), `claims` (an ephemeral node of the same
/// name while an item is claimed), `dead`, `line` (consumers that wait) and `receipts`. All are containers. The data of an
/// item is the payload and nothing else; the version of its node counts the attempts.
///
/// # Fairness
///
/// One consumer gets the items strictly in order. Where several take at once, each takes one of the first: eight for each
/// of the others, of equal rank. In a [`PriorityQueue`] and a [`DelayQueue`], what was put or given back before a take began
/// is counted in. An item that comes back keeps its place; consumers of a [`Queue`] that have read ahead may see it up to
/// sixteen items later, those of the others one item later if its consumer died. Consumers that wait for an item are served
/// in the order of arrival, and an item wakes one of them.
///
/// # Session loss
///
/// A claim ends with its session, and [`lost`](crate::Hold::lost) resolves before another consumer can have the item.
/// Whoever takes then gets [`TakeError::SessionEnded`]; a [`Consumer`] goes on in the next session, and says so.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Json, Queue};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Drain { host: String }
/// # async fn drain(host: &str) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Queue::new(client, "/hosts/to-drain").payload::<Json<Drain>>();
/// queue.put(&Json(Drain { host: "db7".into() })).await?;
///
/// let claim = queue.take().await?;
/// let worked = tokio::select! {
///     worked = drain(&claim.payload().0.host) => worked,
///     () = claim.lost() => return Err("somebody else may have the item now".into()),
/// };
/// match worked {
///     Ok(()) => claim.ack().await?,
///     Err(error) => claim.give_back(&error.to_string()).await?,
/// }
/// # Ok(()) }
/// ```
pub struct OrderedQueue<O, T = Vec<u8>> {
    shelf: Shelf,
    kind: PhantomData<fn() -> (O, T)>,
}

impl<O: Order> OrderedQueue<O> {
    /// A queue at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self::of(Shelf::new(client, path.into(), O::RULE))
    }
}

impl<O: Order, T> OrderedQueue<O, T> {
    fn of(shelf: Shelf) -> Self {
        Self {
            shelf,
            kind: PhantomData,
        }
    }

    /// The same queue with payloads of another type: [`String`], or [`Json`] of a type of your own. Bytes unless set.
    #[must_use]
    pub fn payload<U: Payload>(self) -> OrderedQueue<O, U> {
        OrderedQueue::of(self.shelf)
    }

    /// Who may touch the directories and nodes of this queue. Everybody unless set. Directories that have to be made above
    /// it stay open: make them first if they should not be.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        let mut shelf = self.shelf;
        shelf.access = Access::new(acl);
        Self::of(shelf.with_receipts())
    }

    taker_options!();

    /// How often an item is delivered before it becomes a dead letter. 5 unless set; at least once.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.shelf.attempts_max = attempts_max.max(1);
        self
    }

    /// How many items there may be before a put is refused. 10,000 unless set, because clients of default settings refuse to
    /// list much more than 20,000. A producer looks each time when it is near, and else now and then, so several producers
    /// may pass it by a tenth of what was left when they looked.
    #[must_use]
    pub fn depth_max(mut self, depth_max: usize) -> Self {
        self.shelf.depth_max = depth_max;
        self
    }

    /// How many bytes an item may have. 64 KiB unless set; servers take no more than 1 MiB in one request.
    #[must_use]
    pub fn item_bytes_max(mut self, item_bytes_max: usize) -> Self {
        self.shelf.item_bytes_max = item_bytes_max;
        self
    }

    /// Spreads the items over so many directories, for more of them than can be listed at once. Order is kept within each;
    /// items of equal rank in different ones come in any order. Every producer and consumer has to use the same
    /// number. 1 unless set.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shelf.shards = shards.max(1);
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.shelf.path()
    }

    pub(crate) fn client(&self) -> Client {
        self.shelf.client().clone()
    }

    pub(crate) fn through(&self, client: &Client) -> Self {
        Self::of(self.shelf.through(client))
    }

    fn check(&self) -> Result<(), TakeError> {
        self.shelf
            .check_path()
            .map_err(|source| TakeError::BadPath {
                path: self.path().to_owned(),
                source,
            })
    }

    fn error(&self, failure: Failure) -> TakeError {
        TakeError::new(failure, self.path())
    }
}

impl<O: Order, T: Payload> OrderedQueue<O, T> {
    /// Claims the next item, and waits in line for one if there is none. With a warm list that is one round trip, and the
    /// acknowledgement another; in a [`PriorityQueue`] and a [`DelayQueue`] a list is warm until something is put.
    ///
    /// An item that cannot be read becomes a dead letter.
    ///
    /// # Errors
    ///
    /// See [`TakeError`]; never [`TakeError::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. An item that was being claimed is delivered again, and the attempt counts.
    pub async fn take(&self) -> Result<Claim<T>, TakeError> {
        self.check()?;
        loop {
            let held = self.shelf.take(Empty::Waits).await;
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
        let home = self.shelf.client().home();
        match home.timeout(limit, self.take()).await {
            Some(taken) => taken,
            None => Err(TakeError::TimedOut {
                path: self.path().to_owned(),
                limit,
            }),
        }
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
        self.check()?;
        loop {
            let held = self.shelf.try_take().await;
            let Some(held) = held.map_err(|failure| self.error(failure))? else {
                return Ok(None);
            };
            if let Some((held, payload)) = held.open().await {
                return Ok(Some(Claim::new(held, payload)));
            }
        }
    }

    /// Takes one item after the other, and goes on over the end of the session. Each `next` of the stream is a
    /// [`take`](Self::take); several consumers of one queue can be at work at once.
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
            shelf: self.shelf.clone(),
            kind: PhantomData,
        }
    }
}

impl<O, T> fmt::Debug for OrderedQueue<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedQueue")
            .field("path", &self.shelf.path())
            .finish_non_exhaustive()
    }
}
