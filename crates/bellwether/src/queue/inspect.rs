//! Looks at a queue that take nothing.

use std::time::Duration;

use bellwether_client as zk;
use futures_util::future::try_join_all;

use crate::contender::Failure;
use crate::queue::OrderedQueue;
use crate::queue::claim::age;
use crate::queue::error::TakeError;
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::shelf::Shelf;

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
        self.check()?;
        let found = async {
            let dead = self.shelf.dir("dead");
            let zk = self.shelf.client().zk();
            let dead = self.shelf.retry(|| zk.exists(dead.as_str())).await?;
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

    /// How long ago the oldest item was put, claimed or not, by the clocks of the servers then and of this machine now; `None`
    /// if there is none. Two round trips.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn oldest_age(&self) -> Result<Option<Duration>, TakeError> {
        self.check()?;
        let put_ms = self.shelf.oldest_ms().await;
        let put_ms = put_ms.map_err(|failure| self.error(failure))?;
        Ok(put_ms.map(age))
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
}

impl Shelf {
    /// When the oldest item was put, by the servers' clock. Counters rise with time, so it is the lowest of some shard.
    async fn oldest_ms(&self) -> Result<Option<i64>, Failure> {
        let zk = self.client().zk();
        loop {
            let lowest = self.retry(|| {
                try_join_all((0..self.shards).map(|shard| {
                    let list = zk.children(self.items_dir(shard).as_str());
                    async move {
                        let names = match list.await {
                            Err(zk::Error::NO_NODE) => Vec::new(),
                            names => names?,
                        };
                        let items = names
                            .into_iter()
                            .filter_map(|name| Item::parse(self.rule(), name, shard));
                        Ok(items.min_by_key(Item::sequence))
                    }
                }))
            });
            let lowest: Vec<_> = lowest.await?.into_iter().flatten().collect();
            let stats = self
                .retry(|| try_join_all(lowest.iter().map(|item| zk.exists(&self.item_path(item)))));
            let stats = stats.await?;
            // One that is gone was acknowledged in between: look again.
            if stats.iter().all(Option::is_some) {
                return Ok(stats.into_iter().flatten().map(|stat| stat.ctime).min());
            }
        }
    }

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
                    match self.client().zk().get(&path).await {
                        Ok(read) => Ok(Some(read)),
                        Err(zk::Error::NO_NODE) => Ok(None),
                        Err(error) => Err(error),
                    }
                })
                .await?;
            // Taken in between: look again.
            if let Some((payload, stat)) = read {
                return Ok(Some(Peek {
                    id: item.id(),
                    payload: payload.to_vec(),
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
