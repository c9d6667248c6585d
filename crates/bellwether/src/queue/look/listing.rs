//! All items of a queue, seen from outside, and an acknowledgement on behalf of the consumer that has an item.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::hold::fence::FencingToken;
use crate::line::Failure;
use crate::node::created_at;
use crate::node::data::Who;
use crate::queue::OrderedQueue;
use crate::queue::core::QueueCore;
use crate::queue::error::TakeError;
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::take::claim::age;
use crate::queue::take::returned::attempts;
use crate::session::retry::{Retry, found, until_answered};
use crate::session::telemetry::call;

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
    pub async fn list(&self) -> Result<Vec<Listed>, TakeError> {
        call!("queue.list", self.path())
            .run(async {
                let core = self.core().await?;
                let listed = until_answered(|| core.list()).await;
                listed.map_err(|error| self.error(error.into()))
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
    pub async fn ack_claimed(&self, listed: &Listed) -> Result<bool, TakeError> {
        call!("queue.ack_claimed", self.path())
            .ask(async {
                let core = self.core().await?;
                if listed.claim.is_none() {
                    return Ok(false);
                }
                let acknowledged = core.ack_claimed(listed).await;
                acknowledged.map_err(|error| self.error(Failure::from(error)))
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
