//! All items of a queue, seen from outside, and an acknowledgement on behalf of whoever has one.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::contender::Failure;
use crate::contention::since;
use crate::error::{Outcome, outcome};
use crate::queue::OrderedQueue;
use crate::queue::claim::age;
use crate::queue::error::TakeError;
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::shelf::Shelf;
use crate::who::Who;

/// How many requests may be unanswered.
const AHEAD_MAX: usize = 128;

/// An item, as of one look.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    item: Item,
    version: i32,
    /// Which item it is.
    pub id: ItemId,
    /// Its priority, or when it is due in milliseconds since 1970; 0 in a [`Queue`](crate::Queue).
    pub rank: u64,
    /// How many bytes it has.
    pub bytes: usize,
    /// How often it has been delivered.
    pub attempts: u32,
    /// How long ago it was put.
    pub age: Duration,
    /// Who has it, if anybody.
    pub claim: Option<Claimed>,
}

/// Who has an item.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// The fencing token of the claim.
    pub token: i64,
    /// Who it is, by its own words.
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
    pub async fn list(&self) -> Result<Vec<Listed>, TakeError> {
        self.check()?;
        let listed = self.shelf.retry(|| self.shelf.list()).await;
        listed.map_err(|failure| self.error(failure))
    }

    /// Removes an item for good on behalf of whoever has claimed it: for programs that say so from another process than the one
    /// that holds the claim, whose [`lost`](crate::Hold::lost) resolves. `false` if nobody has it, or somebody else by now.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is removed or not.
    pub async fn ack_claimed(&self, listed: &Listed) -> Result<bool, TakeError> {
        self.check()?;
        if listed.claim.is_none() {
            return Ok(false);
        }
        let acknowledged = self.shelf.ack_claimed(listed).await;
        acknowledged.map_err(|error| self.error(Failure::from(error)))
    }
}

impl Shelf {
    async fn list(&self) -> Result<Vec<Listed>, zk::Error> {
        let zk = self.client().zk();
        let names = async |dir: &str| match zk.children(dir).await {
            Err(zk::Error::NO_NODE) => Ok(Vec::new()),
            names => names,
        };
        let mut items = Vec::new();
        for shard in 0..self.shards {
            let names = names(self.items_dir(shard).as_str()).await?;
            let parse = |name| Item::parse(self.rule(), name, shard);
            items.extend(names.into_iter().filter_map(parse));
        }
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
        let claims = &claims;
        stream::iter(items)
            .map(|item| {
                let stat = zk.exists(&self.item_path(&item));
                async move {
                    let claim = claims.get(item.name());
                    Ok(stat.await?.map(|stat| Listed::new(item, &stat, claim)))
                }
            })
            .buffered(AHEAD_MAX)
            .try_filter_map(async |listed| Ok(listed))
            .try_collect()
            .await
    }

    async fn ack_claimed(&self, listed: &Listed) -> Result<bool, zk::Error> {
        let mut in_doubt = false;
        loop {
            let mut writer = self.client().zk().new_multi();
            // Each claim writes the item, so this is the version of one claim only.
            writer.delete(&self.item_path(&listed.item), Some(listed.version));
            writer.delete(&self.claim_path(&listed.item), None);
            let error = match writer.commit().await {
                Ok(_) => return Ok(true),
                // An item that is gone after a lost reply was acknowledged by the first try, or by its holder meanwhile.
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }) => return Ok(in_doubt),
                Err(error) => zk::Error::from(error),
            };
            match error {
                // Another claim was made since, or this one has ended.
                zk::Error::BAD_VERSION | zk::Error::NO_NODE => return Ok(false),
                error if outcome(&error) == Outcome::Unknown => in_doubt = true,
                error => return Err(error),
            }
        }
    }
}

impl Listed {
    fn new(item: Item, stat: &zk::Stat, claim: Option<&(Bytes, zk::Stat)>) -> Self {
        Self {
            version: stat.version,
            id: item.id(),
            rank: item.rank(),
            bytes: usize::try_from(stat.data_length).unwrap_or(0),
            attempts: stat.version.cast_unsigned(),
            age: age(stat.ctime),
            // One that was made by another write than the last of the item is over, or was not there yet.
            claim: claim
                .filter(|(_, claim)| claim.czxid == stat.mzxid)
                .map(|(data, claim)| Claimed {
                    token: claim.czxid,
                    who: Who::from_data(data),
                    since: since(claim),
                }),
            item,
        }
    }
}

/// What has gone meanwhile is not there.
fn found<T>(read: Result<T, zk::Error>) -> Result<Option<T>, zk::Error> {
    match read {
        Err(zk::Error::NO_NODE) => Ok(None),
        read => read.map(Some),
    }
}
