//! Items that were given up.

use std::time::SystemTime;

use bellwether_client as zk;

use crate::contender::{Failure, TRIES_MAX};
use crate::error::{Outcome, outcome};
use crate::queue::OrderedQueue;
use crate::queue::error::{PutError, TakeError};
use crate::queue::order::{Item, ItemId, Order};
use crate::queue::record::Record;
use crate::queue::shelf::Shelf;

/// How many dead letters are read in one request.
const READ_TOGETHER: usize = 16;

/// An item that was given up: claimed too often in vain, rejected, or unreadable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    pub(crate) item: Item,
    /// Which item it was.
    pub id: ItemId,
    /// What was in it, as it was put.
    pub payload: Vec<u8>,
    /// How often it was claimed.
    pub attempts: u32,
    /// What the last one said who tried.
    pub reason: String,
    /// When it was given up, by the clock of the machine that did.
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
        self.check()?;
        let letters = self.shelf.dead_letters().await;
        letters.map_err(|failure| self.error(failure))
    }

    /// Puts a dead letter back for new attempts, behind what is there; `false` if it is gone already.
    ///
    /// # Errors
    ///
    /// As [`put`](crate::Queue::put).
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
}

impl Shelf {
    /// All dead letters, in the order of the queue.
    pub(crate) async fn dead_letters(&self) -> Result<Vec<DeadLetter>, Failure> {
        let dir = self.dir("dead");
        let zk = self.client().zk();
        let list = self
            .retry(|| async {
                match zk.children(dir.as_str()).await {
                    Err(zk::Error::NO_NODE) => Ok(Vec::new()),
                    list => list,
                }
            })
            .await?;
        let mut items: Vec<Item> = list
            .into_iter()
            .filter_map(|name| Item::parse(self.rule(), name, 0))
            .collect();
        items.sort_unstable();
        let mut letters = Vec::new();
        for items in items.chunks(READ_TOGETHER) {
            let reads = self
                .retry(|| async {
                    let mut reader = zk.new_multi_read();
                    for item in items {
                        reader.get(&dir.child(item.name()));
                    }
                    reader.commit().await
                })
                .await?;
            for (item, read) in items.iter().zip(reads) {
                if let zk::MultiReadResult::Data(data, _) = read
                    && let Some((record, payload)) = Record::from_data(&data)
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
        self.check_put_path()?;
        let items = self.items_dir(0);
        let dead = self.dir("dead").child(letter.item.name());
        let (path, mode) = match self.rule().named {
            true => (items.child(letter.item.name()), zk::CreateMode::Persistent),
            false => {
                let prefix = Item::prefix(self.rule(), letter.item.rank(), &letter.id);
                (items.child(prefix), zk::CreateMode::PersistentSequential)
            }
        };
        let found = self
            .retry(|| self.client().zk().exists(&dead))
            .await
            .map_err(|failure| PutError::new(failure, self.path()))?;
        if found.is_none() {
            return Ok(false);
        }
        let options = mode.with_acl(self.access.acl());
        self.write_once_if_there(&[items, self.dir("receipts")], |writer| {
            writer.delete(&dead, None);
            writer.create(&path, &letter.payload, &options);
            self.outdate_lists(writer)
        })
        .await
    }

    /// Deletes a dead letter for good; `false` if it is gone already.
    pub(crate) async fn forget_dead(&self, letter: &DeadLetter) -> Result<bool, Failure> {
        let dead = self.dir("dead").child(letter.item.name());
        let mut in_doubt = false;
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            // Harmless twice: the name is of this one item.
            match self.client().zk().delete(&dead, None).await {
                Ok(()) => return Ok(true),
                // One that is gone after a lost reply was deleted by the first try, or by somebody else meanwhile.
                Err(zk::Error::NO_NODE) => return Ok(in_doubt),
                Err(error) if outcome(&error) == Outcome::Unknown => {
                    in_doubt = true;
                    last = error;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }
}
