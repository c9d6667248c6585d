//! Queues: items that stay until somebody has acknowledged them.

mod claim;
mod consumer;
mod dead_letter;
mod error;
pub(crate) mod held;
pub(crate) mod order;
mod payload;
mod put;
pub(crate) mod record;
pub(crate) mod shelf;
mod take;
mod warm;

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use zookeeper_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::contender::Failure;

pub use claim::Claim;
pub use consumer::Consumer;
pub use dead_letter::DeadLetter;
pub use error::{PutError, SettleError, TakeError};
pub use order::{ByDueTime, ByPriority, Fifo, ItemId, Order};
pub use payload::{Json, Payload};

use self::claim::age;
use self::order::{Item, to_ms};
use self::shelf::Shelf;
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
/// milliseconds, where there is one), `claims` (an ephemeral node of the same name while an item is claimed), `dead`, `line`
/// (consumers that wait) and `receipts`. All are containers. The data of an item is the payload and nothing else; the
/// version of its node counts the attempts.
///
/// # Fairness
///
/// One consumer gets the items strictly in order. Where several take at once, each takes one of the first: eight for each
/// of the others, of equal rank. In a
/// [`PriorityQueue`] and a [`DelayQueue`], what was put before a take began is counted in. An item that comes back keeps its
/// place; consumers of a [`Queue`] that have read ahead may see it up to sixteen items later. Consumers that wait for an item
/// are served in the order of arrival, and an item wakes one of them.
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

    /// How many items there are, and how many of them are claimed or dead.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn depth(&self) -> Result<Depth, TakeError> {
        self.check()?;
        let found = async {
            let dead = self.shelf.dir("dead");
            let zk = self.shelf.client().zk();
            let dead = self.shelf.retry(|| zk.check_stat(dead.as_str())).await?;
            let tally = self.shelf.look().await?;
            let dead = dead.map_or(0, |stat| stat.num_children);
            Ok(Depth {
                items: tally.depth,
                claimed: tally.claimed,
                dead: usize::try_from(dead).unwrap_or(0),
            })
        };
        found.await.map_err(|failure| self.error(failure))
    }

    /// All dead letters, in the order of the queue.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, TakeError> {
        self.check()?;
        let letters = self.shelf.dead_letters().await;
        letters.map_err(|failure| self.error(failure))
    }

    /// Puts a dead letter back for new attempts, behind what is there; `false` if it is gone already.
    ///
    /// # Errors
    ///
    /// As [`put`](Queue::put).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been put back or not.
    pub async fn revive(&self, letter: &DeadLetter) -> Result<bool, PutError> {
        self.shelf.revive(letter).await
    }

    /// Deletes a dead letter for good; `false` if it is gone already.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may be there or not.
    pub async fn forget(&self, letter: &DeadLetter) -> Result<bool, TakeError> {
        self.check()?;
        let forgotten = self.shelf.forget_dead(letter).await;
        forgotten.map_err(|failure| self.error(failure))
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
    /// acknowledgement another; in a [`PriorityQueue`] and a [`DelayQueue`] a look at what was put meanwhile comes first.
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

    /// What would be taken next, without taking it; `None` if nothing would.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn peek(&self) -> Result<Option<Peek>, TakeError> {
        self.check()?;
        let peek = self.shelf.peek().await;
        peek.map_err(|failure| self.error(failure))
    }

    async fn put_ranked(&self, items: Vec<(u64, &T)>) -> Result<Vec<ItemId>, PutError> {
        let mut written = Vec::new();
        for (rank, payload) in items {
            let bytes = payload.to_bytes().map_err(|source| PutError::NotWritable {
                path: self.path().to_owned(),
                source,
            })?;
            written.push((rank, bytes));
        }
        self.shelf.put(written).await
    }

    async fn put_one(&self, rank: u64, payload: &T) -> Result<ItemId, PutError> {
        let mut ids = self.put_ranked(vec![(rank, payload)]).await?;
        Ok(ids.pop().expect("one was put"))
    }
}

impl<T: Payload> Queue<T> {
    /// Puts an item, exactly once: a reply that is lost is made up for. One round trip.
    ///
    /// # Errors
    ///
    /// See [`PutError`]; the item was put only where it says so.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put(&self, payload: &T) -> Result<ItemId, PutError> {
        self.put_one(0, payload).await
    }

    /// Puts several items in one transaction, in this order: all or none.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); [`PutError::TooLarge`] if they are more than the servers take in one request.
    ///
    /// # Cancel safety
    ///
    /// As [`put`](Self::put).
    pub async fn put_all(&self, payloads: &[T]) -> Result<Vec<ItemId>, PutError> {
        let items = payloads.iter().map(|payload| (0, payload)).collect();
        self.put_ranked(items).await
    }
}

impl<T: Payload> PriorityQueue<T> {
    /// Puts an item, exactly once; the lowest priority is taken first. One round trip.
    ///
    /// # Errors
    ///
    /// See [`PutError`]; the item was put only where it says so.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put(&self, priority: u32, payload: &T) -> Result<ItemId, PutError> {
        self.put_one(priority.into(), payload).await
    }

    /// Puts several items in one transaction, all or none, each with its priority.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); [`PutError::TooLarge`] if they are more than the servers take in one request.
    ///
    /// # Cancel safety
    ///
    /// As [`put`](Self::put).
    pub async fn put_all(&self, items: &[(u32, T)]) -> Result<Vec<ItemId>, PutError> {
        let items = items
            .iter()
            .map(|(priority, payload)| (u64::from(*priority), payload));
        self.put_ranked(items.collect()).await
    }
}

impl<T: Payload> DelayQueue<T> {
    /// Puts an item that is not taken before a time, exactly once. One round trip.
    ///
    /// The time is that of the consumers' clocks, and stands in the name of the node: a clock that is set changes when an
    /// item is taken, but never the order.
    ///
    /// # Errors
    ///
    /// See [`PutError`]; the item was put only where it says so.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put_at(&self, due: SystemTime, payload: &T) -> Result<ItemId, PutError> {
        self.put_one(to_ms(due), payload).await
    }

    /// As [`put_at`](Self::put_at), after a delay from now.
    ///
    /// # Errors
    ///
    /// As [`put_at`](Self::put_at).
    ///
    /// # Cancel safety
    ///
    /// As [`put_at`](Self::put_at).
    pub async fn put_after(&self, delay: Duration, payload: &T) -> Result<ItemId, PutError> {
        self.put_at(SystemTime::now() + delay, payload).await
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

/// How full a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// All items, claimed ones among them.
    pub items: usize,
    /// Those that are claimed.
    pub claimed: usize,
    /// Dead letters.
    pub dead: usize,
}

/// The item that is next, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peek {
    /// Which item it is.
    pub id: ItemId,
    /// What is in it, as bytes.
    pub payload: Vec<u8>,
    /// How often it has been delivered.
    pub attempts: u32,
    /// How long ago it was put: in a [`Queue`], the age of the oldest item that waits.
    pub age: Duration,
}

impl Shelf {
    /// The first item that nobody has claimed and that is due.
    async fn peek(&self) -> Result<Option<Peek>, Failure> {
        loop {
            // A list of its own: what this handle has read ahead may be old.
            let Some(item) = self.first().await? else {
                return Ok(None);
            };
            let path = self.item_path(&item);
            let read = self
                .retry(|| async {
                    match self.client().zk().get_data(&path).await {
                        Ok(read) => Ok(Some(read)),
                        Err(zk::Error::NoNode) => Ok(None),
                        Err(error) => Err(error),
                    }
                })
                .await?;
            // Taken in between: look again.
            if let Some((payload, stat)) = read {
                return Ok(Some(Peek {
                    id: item.id(),
                    payload,
                    attempts: stat.version.cast_unsigned(),
                    age: age(stat.ctime),
                }));
            }
        }
    }

    async fn first(&self) -> Result<Option<Item>, Failure> {
        let fresh = self.through(self.client());
        fresh.refill().await?;
        let picked = fresh.warm.pick(self.rule()).into_iter().next();
        Ok(picked.map(|pick| pick.item().clone()))
    }
}
