//! Puts items, each exactly once.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use zookeeper_client as zk;

use crate::contender::{Failure, SEQUENCE_MAX, TRIES_MAX};
use crate::queue::error::PutError;
use crate::queue::order::{Item, ItemId};
use crate::queue::shelf::Shelf;
use crate::receipt::OnceError;

/// How many items there may be unless set. Their names take less than 50 bytes each, and clients of default settings read
/// no list beyond 1 MiB.
pub(crate) const DEPTH_MAX: usize = 10_000;

/// How large an item may be unless set: a claim writes it again, and a batch or a read-ahead holds several.
pub(crate) const ITEM_BYTES_MAX: usize = 64 << 10;

/// Servers take no request beyond 1 MiB; this leaves room for names and lists of access.
const BATCH_BYTES_MAX: usize = 900 << 10;

/// What one create in a batch takes besides path and data: headers, lengths, flags and an open list of access.
const CREATE_OVERHEAD_BYTES: usize = 100;

/// How many puts go without a look at the depth: as many as bring it a tenth closer to the limit.
#[derive(Debug, Default)]
pub(crate) struct Credit(AtomicI64);

impl Credit {
    fn spend(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.fetch_sub(count, Ordering::Relaxed) >= count
    }

    fn set(&self, room: usize) {
        let credit = i64::try_from(room / 10).unwrap_or(i64::MAX);
        self.0.store(credit, Ordering::Relaxed);
    }
}

impl Shelf {
    /// Puts items in one multi: all or none, and once.
    pub(crate) async fn put(&self, items: Vec<(u64, Vec<u8>)>) -> Result<Vec<ItemId>, PutError> {
        let path = self.path();
        if let Err(source) = self.check_path() {
            let path = path.to_owned();
            return Err(PutError::BadPath { path, source });
        }
        if items.is_empty() {
            return Ok(Vec::new());
        }
        self.check_room(&items)
            .await
            .map_err(|failure| PutError::new(failure, path))?;
        let shard = self.next_shard();
        let dir = self.items_dir(shard);
        let mut ids = Vec::new();
        let mut creates = Vec::new();
        for (rank, data) in items {
            let id = ItemId::new();
            creates.push((dir.child(Item::prefix(self.rule(), rank, &id)), data));
            ids.push(id);
        }
        self.write_once(&[dir, self.dir("receipts")], |writer| {
            let options = zk::CreateMode::PersistentSequential.with_acls(self.access.acls());
            for (prefix, data) in &creates {
                writer.add_create(prefix, data, &options)?;
            }
            Ok(())
        })
        .await?;
        Ok(ids)
    }

    /// Makes writes exactly once, and first the directories that they need if those are missing.
    pub(crate) async fn write_once(
        &self,
        dirs: &[crate::path::NodePath],
        fill: impl Fn(&mut zk::MultiWriter<'_>) -> Result<(), zk::Error>,
    ) -> Result<(), PutError> {
        let path = || self.path().to_owned();
        let mut last = zk::Error::NoNode;
        for _ in 0..TRIES_MAX {
            match self.receipts().once(&fill).await {
                Ok(_) => return Ok(()),
                Err(OnceError::Refused(error)) => match zk::Error::from(error) {
                    zk::Error::NoNode => {
                        // Refused as a whole, so nothing was written. Empty directories are removed by the servers, so they
                        // may vanish again before the next try.
                        let made = self.make(dirs).await;
                        made.map_err(|failure| PutError::new(failure, self.path()))?;
                        last = zk::Error::NoNode;
                    }
                    source => {
                        return Err(PutError::Refused {
                            path: path(),
                            source,
                        });
                    }
                },
                Err(OnceError::SessionEnded) => {
                    return Err(PutError::SessionEnded { path: path() });
                }
                Err(OnceError::OutcomeUnknown(source)) => {
                    return Err(PutError::OutcomeUnknown {
                        path: path(),
                        source,
                    });
                }
            }
        }
        Err(PutError::Refused {
            path: path(),
            source: last,
        })
    }

    /// Refuses what is too large or too much. The depth is looked at now and then, and each time when it is close to the
    /// limit; puts at the same time do not see each other, so it may be passed by as many as there are at once.
    pub(crate) async fn check_room(&self, items: &[(u64, Vec<u8>)]) -> Result<(), Failure> {
        let mut batch_bytes = 0;
        for (_, data) in items {
            if data.len() > self.item_bytes_max {
                return Err(Failure::TooLarge {
                    bytes: data.len(),
                    bytes_max: self.item_bytes_max,
                });
            }
            batch_bytes += data.len() + self.dir("items").as_str().len() + CREATE_OVERHEAD_BYTES;
        }
        if batch_bytes > BATCH_BYTES_MAX {
            return Err(Failure::TooLarge {
                bytes: batch_bytes,
                bytes_max: BATCH_BYTES_MAX,
            });
        }
        if self.credit.spend(items.len()) {
            return Ok(());
        }
        let tally = self.look().await?;
        // A place of several shards has used up none of their counters before all together would have used up one.
        if tally.puts >= i64::from(SEQUENCE_MAX) {
            return Err(Failure::SequenceUsedUp);
        }
        let after = tally.depth + items.len();
        if after > self.depth_max {
            self.credit.set(0);
            return Err(Failure::LineFull { depth: tally.depth });
        }
        self.credit.set(self.depth_max - after);
        Ok(())
    }

    /// Items are dealt to the shards in turn.
    fn next_shard(&self) -> usize {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        match self.shards {
            1 => 0,
            shards => TURN.fetch_add(1, Ordering::Relaxed) % shards,
        }
    }
}
