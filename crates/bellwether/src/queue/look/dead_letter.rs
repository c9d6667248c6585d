//! Dead letters: items that were given up.

use std::time::SystemTime;

use bellwether_client as zk;

use crate::line::Failure;
use crate::queue::OrderedQueue;
use crate::queue::core::QueueCore;
use crate::queue::error::{PutError, TakeError};
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::record::EndRecord;
use crate::session::retry::{Retry, found, until_answered};
use crate::session::telemetry::call;

/// How many dead letters are read in one request.
const READ_TOGETHER: usize = 16;

/// An item that was given up: it failed too often, was rejected, or could not be decoded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    pub(crate) item: Item,
    /// Which item it was.
    pub id: ItemId,
    /// The payload, as it was put.
    pub payload: Vec<u8>,
    /// How often it was claimed.
    pub attempts: u32,
    /// The reason that the last consumer gave.
    pub reason: String,
    /// When it was given up, by the clock of the machine that gave it up.
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
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, TakeError> {
        call!("queue.dead_letters", self.path())
            .run(async {
                let core = self.core().await?;
                let letters = core.dead_letters().await;
                letters.map_err(|failure| self.error(failure))
            })
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
    pub async fn revive(&self, letter: &DeadLetter) -> Result<bool, PutError> {
        call!("queue.revive", self.path())
            .ask(async { self.core.now_to_put().await?.revive(letter).await })
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
    pub async fn forget(&self, letter: &DeadLetter) -> Result<bool, TakeError> {
        call!("queue.forget", self.path())
            .ask(async {
                let core = self.core().await?;
                let forgotten = core.forget_dead(letter).await;
                forgotten.map_err(|failure| self.error(failure))
            })
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
    pub(crate) async fn revive(&self, letter: &DeadLetter) -> Result<bool, PutError> {
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
        let stat = until_answered(|| self.session().zk().exists(&dead)).await;
        let stat = stat.map_err(|error| PutError::new(error.into(), self.path()))?;
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
