//! Reading a queue without taking items.

use std::collections::HashMap;
use std::time::Duration;

use bellwether_client as zk;

use crate::line::Failure;
use crate::queue::OrderedQueue;
use crate::queue::core::QueueCore;
use crate::queue::error::TakeError;
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::take::claim::age;
use crate::queue::take::returned::{RETURNED, ReturnedName, attempts};
use crate::session::retry::{found, until_answered};
use crate::session::telemetry::call;

/// How often the oldest item is looked for.
const LOOKS_MAX: usize = 20;

/// How full a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// All items, claimed ones among them.
    pub items: usize,
    /// How many of them are claimed.
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
    /// The payload, as bytes.
    pub payload: Vec<u8>,
    /// How often it has been delivered.
    pub attempts: u32,
    /// How long ago it was put.
    pub age: Duration,
}

impl<O: Order, T> OrderedQueue<O, T> {
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
        call!("queue.depth", self.path())
            .run(self.depth_untraced())
            .await
    }

    async fn depth_untraced(&self) -> Result<Depth, TakeError> {
        let core = self.core().await?;
        let found = async {
            let dead = core.dir("dead");
            let zk = core.session().zk();
            let dead = until_answered(|| zk.exists(dead.as_str())).await?;
            let counts = core.look().await?;
            let dead = dead.map_or(0, |stat| stat.num_children);
            Ok(Depth {
                items: counts.depth,
                claimed: counts.claimed,
                dead: usize::try_from(dead).unwrap_or(0),
            })
        };
        found.await.map_err(|failure| self.error(failure))
    }

    /// How long ago the oldest item was put, claimed or not, by the clocks of the servers then and of this machine now; `None`
    /// if there is none. Two round trips, and more while consumers acknowledge the oldest items; after a few of them, or if all were
    /// acknowledged each time, the result is that of a younger item, or `None`.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn oldest_age(&self) -> Result<Option<Duration>, TakeError> {
        call!("queue.oldest_age", self.path())
            .find(async {
                let core = self.core().await?;
                let put_ms = core.oldest_ms().await;
                let put_ms = put_ms.map_err(|failure| self.error(failure))?;
                Ok(put_ms.map(age))
            })
            .await
    }

    /// The item that would be taken next, without taking it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn peek(&self) -> Result<Option<Peek>, TakeError> {
        call!("queue.peek", self.path())
            .find(async {
                let core = self.core().await?;
                let peek = core.peek().await;
                peek.map_err(|failure| self.error(failure))
            })
            .await
    }
}

impl QueueCore {
    /// When the oldest item was put, by the servers' clock: the counter rises with time.
    async fn oldest_ms(&self) -> Result<Option<i64>, Failure> {
        let zk = self.session().zk();
        let items = self.dir("items");
        // An item that is gone was acknowledged in between: look again. But in a busy queue that may happen each time.
        for _ in 0..LOOKS_MAX {
            let names = found(until_answered(|| zk.children(items.as_str())).await)?;
            let names = names.unwrap_or_default().into_iter();
            let parsed = names.filter_map(|name| Item::parse(self.rule(), name));
            let Some(lowest) = parsed.min_by_key(Item::sequence) else {
                return Ok(None);
            };
            let path = self.item_path(&lowest);
            if let Some(stat) = until_answered(|| zk.exists(&path)).await? {
                return Ok(Some(stat.ctime));
            }
        }
        Ok(None)
    }

    /// The first item that is due and not claimed.
    async fn peek(&self) -> Result<Option<Peek>, Failure> {
        loop {
            // A new list: the read-ahead of this handle may be old.
            let Some(item) = self.first().await? else {
                return Ok(None);
            };
            let path = self.item_path(&item);
            let read = until_answered(|| self.session().zk().get(&path)).await;
            let uncounted = until_answered(|| self.uncounted()).await?;
            // Taken in between: look again.
            if let Some((payload, stat)) = found(read)? {
                let uncounted = uncounted.get(item.name()).copied().unwrap_or(0);
                return Ok(Some(Peek {
                    id: item.id(),
                    payload: payload.to_vec(),
                    attempts: attempts(stat.version, uncounted),
                    age: age(stat.ctime),
                }));
            }
        }
    }

    /// How many claims of items do not count as attempts, by the names of the items.
    pub(super) async fn uncounted(&self) -> Result<HashMap<String, u32>, zk::Error> {
        let names = found(
            self.session()
                .zk()
                .children(self.dir(RETURNED).as_str())
                .await,
        )?;
        let names = names
            .iter()
            .flatten()
            .filter_map(|name| ReturnedName::parse(name));
        Ok(names
            .map(|name| (name.item.to_owned(), name.uncounted))
            .collect())
    }

    async fn first(&self) -> Result<Option<Item>, Failure> {
        let fresh = self.fresh();
        fresh.refill().await?;
        let picked = fresh.cache().pick(self.rule()).into_iter().next();
        Ok(picked.map(|pick| pick.item().clone()))
    }
}
