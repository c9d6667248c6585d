//! Queues with at-least-once delivery: items stay until a consumer has acknowledged them.

pub(crate) mod claimed_item;
pub(crate) mod core;
pub(crate) mod item_cache;
mod look;
pub(crate) mod order;
pub(crate) mod take;
pub(crate) mod tasks;

pub use self::look::{Claimed, DeadLetter, Depth, Listed, Peek};
pub use self::order::{ByDueTime, ByPriority, Fifo, ItemId, Order};
pub use self::tasks::{TaskCounts, TaskProgress};
pub use crate::node::data::{Payload, RecordedOrder};

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use bellwether_client::environment;
use futures_util::future::join_all;
use futures_util::stream::unfold;

use crate::error::{Error, ErrorKind, Failure};
use crate::events::Events;
use crate::hold::Hold;
use crate::queue::claimed_item::{ClaimedItem, End};
use crate::queue::core::{QueueCore, taker_options};
use crate::queue::order::{due_rank, to_ms};
use crate::session::client::Client;
use crate::session::telemetry::call;

pub(crate) use self::take::Empty;

/// The number of items of a batch that are claimed at once.
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
/// its reply is lost, or returns [`ErrorKind::OutcomeUnknown`]. An item is claimed by one consumer at a time, and the fencing
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
/// ([`ErrorKind::InUse`]).
///
/// # Session loss
///
/// A claim ends with its session, and [`lost`](crate::Hold::lost) resolves before another consumer can claim the item. A take that is under
/// way returns [`ErrorKind::SessionEnded`]; a [`Consumer`] continues in the next session, and reports the error.
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

    /// Sets the number of deliveries before an item becomes a dead letter. 5 unless set; at least once.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.core.attempts_max = attempts_max.max(1);
        self
    }

    /// Sets the number of items at which a put is refused. 10,000 unless set, because clients of default settings refuse to list much more
    /// than 20,000. A producer checks the depth at every put when it is near the limit, and otherwise now and then, so several producers
    /// may exceed the limit by a tenth of the room that they saw.
    #[must_use]
    pub fn depth_max(mut self, depth_max: usize) -> Self {
        self.core.depth_max = depth_max;
        self
    }

    /// Sets the largest size of an item. 64 KiB unless set; servers take no more than 1 MiB in one request.
    #[must_use]
    pub fn item_bytes_max(mut self, item_bytes_max: usize) -> Self {
        self.core.item_bytes_max = item_bytes_max;
        self
    }

    pub(crate) fn client(&self) -> &Client {
        self.core.client()
    }

    /// The engine in the current session.
    async fn core(&self) -> Result<QueueCore, Failure> {
        self.core.now().await
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
    /// [`ErrorKind`]: `BadPath`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Refused`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. An item that was being claimed is delivered again, and the attempt counts.
    pub async fn take(&self) -> Result<Claim<T>, Error> {
        self.take_within(None).await
    }

    /// Does the same as [`take`](Self::take), but gives up after a time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take); the same holds when the limit has passed.
    pub async fn take_timeout(&self, limit: Duration) -> Result<Claim<T>, Error> {
        self.take_within(Some(limit)).await
    }

    async fn take_within(&self, limit: Option<Duration>) -> Result<Claim<T>, Error> {
        call!("queue.take", self.path())
            .waits(self.client(), limit)
            .hold(async {
                let core = self.core().await?;
                loop {
                    if let Some(held) = core.take(Empty::Waits).await?
                        && let Some((held, payload)) = held.open().await
                    {
                        return Ok(Claim::new(held, payload));
                    }
                }
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
    pub async fn try_take(&self) -> Result<Option<Claim<T>>, Error> {
        call!("queue.try_take", self.path())
            .try_hold(async {
                let core = self.core().await?;
                loop {
                    let Some(held) = core.try_take().await? else {
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
    pub async fn take_many(&self, max: usize) -> Result<Vec<Claim<T>>, Error> {
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

impl<T: Payload> Queue<T> {
    /// Puts an item exactly once, even if a reply is lost. One round trip.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NotEncodable`, `InUse`, `SequenceUsedUp`, `TooManyEphemerals`,
    /// `NoSession`, `SessionEnded`, `Disconnected`, `Full`, `OutcomeUnknown`, `Refused`. Only after `OutcomeUnknown` the item may have
    /// been put.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put(&self, payload: &T) -> Result<ItemId, Error> {
        call!("queue.put", self.path())
            .run(self.put_one(0, payload))
            .await
    }

    /// Puts several items in one transaction, in this order: all or none.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); [`ErrorKind::TooLarge`] if they are more than the servers take in one request.
    ///
    /// # Cancel safety
    ///
    /// As [`put`](Self::put).
    pub async fn put_all(&self, payloads: &[T]) -> Result<Vec<ItemId>, Error> {
        call!("queue.put_all", self.path())
            .run(self.put_ranked(payloads.iter().map(|payload| (0, payload)).collect()))
            .await
    }
}

impl<T: Payload> PriorityQueue<T> {
    /// Puts an item, exactly once; the lowest priority is taken first, and it may be negative. One round trip.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NotEncodable`, `InUse`, `SequenceUsedUp`, `TooManyEphemerals`,
    /// `NoSession`, `SessionEnded`, `Disconnected`, `Full`, `OutcomeUnknown`, `Refused`. Only after `OutcomeUnknown` the item may have
    /// been put.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put(&self, priority: i32, payload: &T) -> Result<ItemId, Error> {
        call!("queue.put", self.path())
            .run(self.put_one(priority.into(), payload))
            .await
    }

    /// Puts several items in one transaction, all or none, each with its priority.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); [`ErrorKind::TooLarge`] if they are more than the servers take in one request.
    ///
    /// # Cancel safety
    ///
    /// As [`put`](Self::put).
    pub async fn put_all(&self, items: &[(i32, T)]) -> Result<Vec<ItemId>, Error> {
        let items = items
            .iter()
            .map(|(priority, payload)| (i64::from(*priority), payload));
        call!("queue.put_all", self.path())
            .run(self.put_ranked(items.collect()))
            .await
    }
}

impl<T: Payload> DelayQueue<T> {
    /// Puts an item that is not taken before a time, exactly once. One round trip.
    ///
    /// The time refers to the clocks of the consumers, and is part of the node's name: a wrong clock changes when an item is taken, but
    /// never the order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NotEncodable`, `InUse`, `SequenceUsedUp`, `TooManyEphemerals`,
    /// `NoSession`, `SessionEnded`, `Disconnected`, `Full`, `OutcomeUnknown`, `Refused`. Only after `OutcomeUnknown` the item may have
    /// been put.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put_at(&self, due: SystemTime, payload: &T) -> Result<ItemId, Error> {
        call!("queue.put", self.path())
            .run(self.put_one(due_rank(to_ms(due)), payload))
            .await
    }

    /// Does the same as [`put_at`](Self::put_at), after a delay from now.
    ///
    /// # Errors
    ///
    /// As [`put_at`](Self::put_at).
    ///
    /// # Cancel safety
    ///
    /// As [`put_at`](Self::put_at).
    pub async fn put_after(&self, delay: Duration, payload: &T) -> Result<ItemId, Error> {
        call!("queue.put", self.path())
            .run(async {
                // A time beyond the range is never reached.
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let due_ms = to_ms(environment::system_time()).saturating_add(delay_ms);
                self.put_one(due_rank(due_ms), payload).await
            })
            .await
    }
}

impl<O: Order, T: Payload> OrderedQueue<O, T> {
    async fn put_ranked(&self, items: Vec<(i64, &T)>) -> Result<Vec<ItemId>, Failure> {
        let mut written = Vec::new();
        for (rank, payload) in items {
            let bytes = payload.to_bytes();
            let bytes = bytes.map_err(|error| ErrorKind::NotEncodable(error.into()))?;
            written.push((rank, bytes));
        }
        self.core.now().await?.put(written).await
    }

    async fn put_one(&self, rank: i64, payload: &T) -> Result<ItemId, Failure> {
        let mut ids = self.put_ranked(vec![(rank, payload)]).await?;
        Ok(ids.pop().expect("one was put"))
    }
}

/// The pause after a transient failure.
const PAUSE: Duration = Duration::from_millis(500);

/// A stream of claims without end; see [`OrderedQueue::consumer`].
///
/// An error is an item and not the end: after [`ErrorKind::SessionEnded`] the next item is claimed in the next session. The stream ends
/// only where a retry cannot help: [`ErrorKind::BadPath`], [`ErrorKind::InUse`], [`ErrorKind::TooLarge`],
/// [`ErrorKind::Refused`], and a client that is closed.
pub type Consumer<T> = Events<Result<Claim<T>, Error>>;

impl<T: Payload + Send + 'static> Consumer<T> {
    pub(crate) fn of<O: Order>(queue: OrderedQueue<O, T>) -> Self {
        Self::from_stream(unfold(Some(queue), next))
    }
}

async fn next<O: Order, T: Payload + Send + 'static>(
    queue: Option<OrderedQueue<O, T>>,
) -> Option<(Result<Claim<T>, Error>, Option<OrderedQueue<O, T>>)> {
    let queue = queue?;
    // While no server answers there is nothing to report: the client writes it to the log.
    let _ = queue.client().session_in_time().await;
    let taken = queue.take().await;
    match taken.as_ref().err().map(|error| &error.kind) {
        None | Some(ErrorKind::SessionEnded) => {}
        Some(
            ErrorKind::BadPath(_)
            | ErrorKind::InUse(_)
            | ErrorKind::TooLarge { .. }
            | ErrorKind::Refused { .. },
        ) => return Some((taken, None)),
        Some(kind) if kind.is_final() => return Some((taken, None)),
        Some(_) => queue.client().runtime().sleep(PAUSE).await,
    }
    Some((taken, Some(queue)))
}

/// A hold on an item of a queue; see [`Hold`] for what it promises. The item stays on the servers until it is [acknowledged](Self::ack).
///
/// When the claim is dropped or its session ends, the item is delivered again. Either counts as an attempt;
/// [`give_back_uncounted`](Self::give_back_uncounted) does not.
#[derive(Debug)]
#[must_use = "the item is delivered again when the claim is dropped"]
pub struct Claim<T> {
    held: ClaimedItem,
    payload: T,
}

impl<T> Claim<T> {
    pub(crate) fn new(held: ClaimedItem, payload: T) -> Self {
        Self { held, payload }
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Returns the id of the item: what its put returned.
    #[must_use]
    pub fn id(&self) -> ItemId {
        self.held.item().id()
    }

    /// Returns the number of deliveries of the item, including this delivery, but not those that were [given back
    /// uncounted](Self::give_back_uncounted).
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.held.attempts()
    }

    /// Returns the time since the item was put, by the clocks of the servers then and of this machine now.
    #[must_use]
    pub fn age(&self) -> Duration {
        age(self.held.put_ms())
    }

    /// Acknowledges the item: removes it for good and waits for the server's answer, over any number of reconnects. It succeeds only while
    /// this claim is valid.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is removed or will be delivered again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn ack(self) -> Result<(), Error> {
        call!("queue.ack", self.path())
            .of(&self)
            .run(self.held.settle(&End::Delete))
            .await
    }

    /// Gives the item back at its old place, for another attempt, after the [backoff](crate::Queue::backoff) if one is set. The reason, or
    /// its first 4 KiB, is kept for the dead letter, unless a later reason replaces it.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item has been or will be given back, perhaps without the reason.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn give_back(self, reason: &str) -> Result<(), Error> {
        call!("queue.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.failed(self.held.backoff(), reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// Does the same as [`give_back`](Self::give_back), but the item is not delivered again before `delay` has passed, by the clocks of the
    /// consumers. Other items are delivered meanwhile.
    ///
    /// # Cancel safety
    ///
    /// As [`give_back`](Self::give_back), perhaps without the delay.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn give_back_after(self, delay: Duration, reason: &str) -> Result<(), Error> {
        call!("queue.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.failed(delay, reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// Does the same as [`give_back`](Self::give_back), but this delivery does not count as an attempt, and there is no backoff: for a
    /// consumer that ends, or cannot do its work, for a reason that has nothing to do with the item.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item has been or will be given back; the attempt may count.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn give_back_uncounted(self, reason: &str) -> Result<(), Error> {
        call!("queue.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.uncounted(reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// Makes the item a dead letter at once: it will never succeed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is a dead letter or will be delivered again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn reject(self, reason: &str) -> Result<(), Error> {
        call!("queue.reject", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.given_up(reason);
                self.held.settle(&end).await
            })
            .await
    }
}

impl<T> Deref for Claim<T> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.held.hold()
    }
}

/// Returns the time since then.
pub(crate) fn age(put_ms: i64) -> Duration {
    let now = to_ms(environment::system_time());
    Duration::from_millis(now.saturating_sub(u64::try_from(put_ms).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bellwether_testkit::{Direction, FaultProxy, Op, TestServer};

    use super::*;

    use crate::session::client::{Client, connect};
    use crate::session::liveness::pretended_ensemble::{session, until_unproven};

    #[tokio::test(flavor = "multi_thread")]
    async fn claim_is_not_returned_when_it_is_lost_already() {
        let server = TestServer::start().await.unwrap();
        let proxy = FaultProxy::start(server.address()).await.unwrap();
        let session = session(proxy.connect_string()).await;
        let client = Client::start(session.clone(), connect(proxy.connect_string()));
        let queue = PriorityQueue::<Vec<u8>>::new(&client, "/queue");
        // Put by another client, because the receipt of a put keeps the heartbeat running.
        let other = connect(server.connect_string()).await.unwrap();
        let others = PriorityQueue::<Vec<u8>>::new(&other, "/queue");
        others.put(1, &Vec::new()).await.unwrap();
        // Once taken and given back, so that all directories are there.
        let claim = others.try_take().await.unwrap().expect("there is one");
        claim.give_back("").await.unwrap();
        // The claim is answered; the reply to the read-ahead behind it is lost, and comes when the claim is no longer proof of life.
        let is_claimed = AtomicBool::new(false);
        let lost = proxy.swallow_reply_where(move |request| {
            is_claimed.fetch_or(request.op == Op::Multi, Ordering::Relaxed)
                && request.op == Op::MultiRead
        });
        proxy.refuse(true);
        let taken = tokio::spawn(async move { queue.try_take().await });
        lost.happened().await.unwrap();
        // The next connection is there when it is needed: the session ends soon after its proof of life.
        proxy.hold(Direction::ToServer);
        proxy.refuse(false);
        until_unproven(&session).await;
        proxy.resume(Direction::ToServer);
        let claim = taken.await.unwrap().unwrap().expect("there is one");
        assert!(claim.is_held());
        claim.ack().await.unwrap();
    }
}
