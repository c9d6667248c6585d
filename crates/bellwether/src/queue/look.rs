//! Reading a queue without taking items: depth, lists and dead letters.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::error::{Error, Failure};
use crate::hold::fence::FencingToken;
use crate::node::created_at;
use crate::node::data::Who;
use crate::queue::claimed_item::{EndRecord, RETURNED, ReturnedName, attempts};
use crate::queue::core::QueueCore;
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::{OrderedQueue, age};
use crate::session::retry::{Retry, found, until_answered};
use crate::session::telemetry::call;

/// The number of looks for the oldest item.
const LOOKS_MAX: usize = 20;

/// The number of items of a queue, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// All items, claimed ones among them.
    pub items: usize,
    /// The number of them that are claimed.
    pub claimed: usize,
    /// Dead letters.
    pub dead: usize,
}

/// The item that is next, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peek {
    /// The id of the item.
    pub id: ItemId,
    /// The payload, as bytes.
    pub payload: Vec<u8>,
    /// The number of its deliveries.
    pub attempts: u32,
    /// The time since it was put.
    pub age: Duration,
}

impl<O: Order, T> OrderedQueue<O, T> {
    /// Returns the number of items, and of those that are claimed or dead.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn depth(&self) -> Result<Depth, Error> {
        call!("queue.depth", self.path())
            .run(async {
                let core = self.core().await?;
                let dead = core.dir("dead");
                let zk = core.session().zk();
                let dead = until_answered(|| zk.exists(dead.as_str())).await?;
                let counts = core.read_counts().await?;
                let dead = dead.map_or(0, |stat| stat.num_children);
                Ok(Depth {
                    items: counts.depth,
                    claimed: counts.claimed,
                    dead: usize::try_from(dead).unwrap_or(0),
                })
            })
            .await
    }

    /// Returns the time since the oldest item was put, claimed or not, by the clocks of the servers then and of this machine now; `None` if
    /// there is none. Two round trips, and more while consumers acknowledge the oldest items; after a few of them, or if all were
    /// acknowledged each time, the result is that of a younger item, or `None`.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn oldest_age(&self) -> Result<Option<Duration>, Error> {
        call!("queue.oldest_age", self.path())
            .find(async {
                let put_ms = self.core().await?.oldest_ms().await?;
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
    pub async fn peek(&self) -> Result<Option<Peek>, Error> {
        call!("queue.peek", self.path())
            .find(async { self.core().await?.peek().await })
            .await
    }
}

impl QueueCore {
    /// Returns the time when the oldest item was put, by the servers' clock: the counter rises with time.
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

    /// Returns the numbers of claims that do not count as attempts, by the names of the items.
    async fn uncounted(&self) -> Result<HashMap<String, u32>, zk::Error> {
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

/// The number of requests that may be unanswered.
const AHEAD_MAX: usize = 128;

/// An item, as of one look.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    item: Item,
    version: i32,
    /// The id of the item.
    pub id: ItemId,
    /// The priority of the item, or when it is due in milliseconds since 1970; 0 in a [`Queue`](crate::Queue).
    pub rank: i64,
    /// The size of the item.
    pub bytes: usize,
    /// The number of its deliveries.
    pub attempts: u32,
    /// The time since it was put.
    pub age: Duration,
    /// The claim on it, if there is one.
    pub claim: Option<Claimed>,
}

/// The claim of a consumer on an item.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// The fencing token of the claim.
    pub token: FencingToken,
    /// The identity of the consumer, by its own account.
    pub who: Option<Who>,
    /// Since when, by the clock of the servers.
    pub since: SystemTime,
}

impl<O: Order, T> OrderedQueue<O, T> {
    /// All items in their order, claimed ones among them. It costs a read for each.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn list(&self) -> Result<Vec<Listed>, Error> {
        call!("queue.list", self.path())
            .run(async {
                let core = self.core().await?;
                Ok(until_answered(|| core.list()).await?)
            })
            .await
    }

    /// Acknowledges an item on behalf of the consumer that has claimed it, from another process; [`lost`](crate::Hold::lost) of the claim
    /// resolves. `false` if the item is not claimed, or another consumer has claimed it by now.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is removed or not.
    pub async fn ack_claimed(&self, listed: &Listed) -> Result<bool, Error> {
        call!("queue.ack_claimed", self.path())
            .ask(async {
                let core = self.core().await?;
                if listed.claim.is_none() {
                    return Ok(false);
                }
                Ok(core.ack_claimed(listed).await?)
            })
            .await
    }
}

impl QueueCore {
    async fn list(&self) -> Result<Vec<Listed>, zk::Error> {
        let zk = self.session().zk();
        let names = async |dir: &str| match zk.children(dir).await {
            Err(zk::Error::NO_NODE) => Ok(Vec::new()),
            names => names,
        };
        let items = names(self.dir("items").as_str()).await?.into_iter();
        let items = items.filter_map(|name| Item::parse(self.rule(), name));
        let mut items: Vec<_> = items.collect();
        items.sort_unstable();
        let claims = self.dir("claims");
        let claims: HashMap<_, _> = stream::iter(names(claims.as_str()).await?)
            .map(|name| {
                let read = zk.get(&claims.child(&name));
                async move { found(read.await).map(|read| Some((name, read?))) }
            })
            .buffered(AHEAD_MAX)
            .try_filter_map(async |claim| Ok(claim))
            .try_collect()
            .await?;
        let (claims, uncounted) = (&claims, &self.uncounted().await?);
        stream::iter(items)
            .map(|item| {
                let stat = zk.exists(&self.item_path(&item));
                async move {
                    let claim = claims.get(item.name());
                    let uncounted = uncounted.get(item.name()).copied().unwrap_or(0);
                    let listed = |stat| Listed::new(item, &stat, claim, uncounted);
                    Ok(stat.await?.map(listed))
                }
            })
            .buffered(AHEAD_MAX)
            .try_filter_map(async |listed| Ok(listed))
            .try_collect()
            .await
    }

    async fn ack_claimed(&self, listed: &Listed) -> Result<bool, zk::Error> {
        let mut retry = Retry::limited();
        loop {
            let mut writer = self.session().zk().new_multi();
            // Each claim writes the item, so this is the version of one claim only.
            writer.delete(&self.item_path(&listed.item), Some(listed.version));
            writer.delete(&self.claim_path(&listed.item), None);
            let error = match writer.commit().await {
                Ok(_) => return Ok(true),
                // An item that is gone after a lost reply was acknowledged by the first try, or by its holder meanwhile.
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }) => return Ok(retry.in_doubt()),
                Err(error) => zk::Error::from(error),
            };
            match error {
                // The claim has ended, or another claim was made since.
                zk::Error::BAD_VERSION | zk::Error::NO_NODE => return Ok(false),
                error => retry.again(error)?,
            }
        }
    }
}

impl Listed {
    fn new(item: Item, stat: &zk::Stat, claim: Option<&(Bytes, zk::Stat)>, uncounted: u32) -> Self {
        Self {
            version: stat.version,
            id: item.id(),
            rank: item.rank(),
            bytes: usize::try_from(stat.data_length).unwrap_or(0),
            attempts: attempts(stat.version, uncounted),
            age: age(stat.ctime),
            // A claim that was not made by the last write of the item has ended, or was not there yet.
            claim: claim
                .filter(|(_, claim)| claim.czxid == stat.mzxid)
                .map(|(data, claim)| Claimed {
                    token: claim.czxid.into(),
                    who: Who::from_data(data),
                    since: created_at(claim),
                }),
            item,
        }
    }
}

/// The number of dead letters that are read in one request.
const READ_TOGETHER: usize = 16;

/// An item that was given up: it failed too often, was rejected, or could not be decoded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    pub(crate) item: Item,
    /// The id of the item.
    pub id: ItemId,
    /// The payload, as it was put.
    pub payload: Vec<u8>,
    /// The number of its claims.
    pub attempts: u32,
    /// The reason that the last consumer gave.
    pub reason: String,
    /// The time when it was given up, by the clock of the machine that gave it up.
    pub died: SystemTime,
}

impl<O: Order, T> OrderedQueue<O, T> {
    /// All dead letters, in the order of the queue.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, Error> {
        call!("queue.dead_letters", self.path())
            .run(async { self.core().await?.dead_letters().await })
            .await
    }

    /// Puts a dead letter back for new attempts, behind the items of its rank; `false` if it is gone already.
    ///
    /// It keeps its priority or due time, also if this handle has another order.
    ///
    /// # Errors
    ///
    /// As [`put`](crate::Queue::put).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been put back or not.
    pub async fn revive(&self, letter: &DeadLetter) -> Result<bool, Error> {
        call!("queue.revive", self.path())
            .ask(async { self.core.now().await?.revive(letter).await })
            .await
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
    pub async fn forget(&self, letter: &DeadLetter) -> Result<bool, Error> {
        call!("queue.forget", self.path())
            .ask(async { self.core().await?.forget_dead(letter).await })
            .await
    }
}

impl QueueCore {
    /// All dead letters, in the order of the queue.
    pub(crate) async fn dead_letters(&self) -> Result<Vec<DeadLetter>, Failure> {
        let dir = self.dir("dead");
        let zk = self.session().zk();
        let list = found(until_answered(|| zk.children(dir.as_str())).await)?;
        let mut items: Vec<Item> = list
            .unwrap_or_default()
            .into_iter()
            .filter_map(|name| Item::parse(self.rule(), name))
            .collect();
        items.sort_unstable();
        let mut letters = Vec::new();
        for items in items.chunks(READ_TOGETHER) {
            let reads = until_answered(|| async {
                let mut reader = zk.new_multi_read();
                for item in items {
                    reader.get(&dir.child(item.name()));
                }
                reader.commit().await
            });
            for (item, read) in items.iter().zip(reads.await?) {
                if let zk::MultiReadResult::Data(data, _) = read
                    && let Some((record, payload)) = EndRecord::from_data(&data)
                {
                    letters.push(DeadLetter {
                        item: item.clone(),
                        id: item.id(),
                        payload: payload.to_owned(),
                        attempts: record.attempts,
                        died: record.ended(),
                        reason: record.reason.unwrap_or_default(),
                    });
                }
            }
        }
        Ok(letters)
    }

    /// Puts a dead letter back, at the end of those of its rank and with no attempts; `false` if it is gone.
    pub(crate) async fn revive(&self, letter: &DeadLetter) -> Result<bool, Failure> {
        let items = self.dir("items");
        let dead = self.dir("dead").child(letter.item.name());
        let (name, mode) = match self.rule().named {
            true => (letter.item.name(), zk::CreateMode::Persistent),
            false => (
                letter.item.own_prefix(),
                zk::CreateMode::PersistentSequential,
            ),
        };
        let path = items.child(name);
        let overtakes = self.rule().overtakes || letter.item.is_ranked();
        let stat = until_answered(|| self.session().zk().exists(&dead)).await?;
        if stat.is_none() {
            return Ok(false);
        }
        let options = mode.with_acl(self.access.acl());
        let dirs = [items, self.dir("receipts")];
        let revived = self.write_once_if_there(&dirs, |writer| {
            writer.delete(&dead, None);
            writer.create(&path, &letter.payload, &options);
            if overtakes {
                self.outdate_ranked_lists(writer);
            }
        });
        let is_revived = revived.await?;
        if overtakes {
            self.cache().outdate();
        }
        Ok(is_revived)
    }

    /// Deletes a dead letter for good; `false` if it is gone already.
    pub(crate) async fn forget_dead(&self, letter: &DeadLetter) -> Result<bool, Failure> {
        let dead = self.dir("dead").child(letter.item.name());
        let mut retry = Retry::limited();
        loop {
            // Idempotent: the name belongs to this item only.
            match self.session().zk().delete(&dead, None).await {
                Ok(()) => return Ok(true),
                // A node that is gone after a lost reply was deleted by the first try, or by another client.
                Err(zk::Error::NO_NODE) => return Ok(retry.in_doubt()),
                Err(error) => retry.again(error)?,
            }
        }
    }
}
