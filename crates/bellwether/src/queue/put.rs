//! Puts items, each exactly once.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bellwether_client as zk;

use crate::contender::{Failure, SEQUENCE_MAX, TRIES_MAX};
use crate::path::NodePath;
use crate::queue::error::PutError;
use crate::queue::order::{Item, ItemId, Order, to_ms};
use crate::queue::payload::Payload;
use crate::queue::shelf::Shelf;
use crate::queue::{DelayQueue, OrderedQueue, PriorityQueue, Queue};
use crate::receipt::OnceError;
use crate::request_size::WRITE_OVERHEAD_BYTES;

/// How many items there may be unless set. Their names take less than 50 bytes each, and clients of default settings read
/// no list beyond 1 MiB.
pub(crate) const DEPTH_MAX: usize = 10_000;

/// How large an item may be unless set: a claim writes it again, and a batch or a read-ahead holds several.
pub(crate) const ITEM_BYTES_MAX: usize = 64 << 10;

/// What is put has to fit a request with a record of how it ended, too.
const BATCH_BYTES_MAX: usize = 900 << 10;

/// The index of the first write that is made once: its receipt goes before.
const AFTER_RECEIPT: usize = 1;

/// What the name of an item takes at most: rank, id and sequence.
const NAME_BYTES_MAX: usize = 50;

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

impl<O: Order, T: Payload> OrderedQueue<O, T> {
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
        self.check_put_path()?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        self.check_room(&items)
            .await
            .map_err(|failure| PutError::new(failure, self.path()))?;
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
            let options = zk::CreateMode::PersistentSequential.with_acl(self.access.acl());
            for (prefix, data) in &creates {
                writer.create(prefix, data, &options);
            }
            self.outdate_lists(writer)
        })
        .await?;
        if self.rule().overtakes {
            self.warm.outdate();
        }
        Ok(ids)
    }

    /// As [`check_path`](Self::check_path), for verbs that write.
    pub(crate) fn check_put_path(&self) -> Result<(), PutError> {
        self.check_path().map_err(|source| PutError::BadPath {
            path: self.path().to_owned(),
            source,
        })
    }

    /// Makes writes exactly once, and first the directories that they need if those are missing.
    pub(crate) async fn write_once(
        &self,
        dirs: &[NodePath],
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<(), PutError> {
        self.write_unless_gone(dirs, None, fill).await.map(drop)
    }

    /// As [`write_once`](Self::write_once); `false` if the node that the first of the writes is about is not there.
    pub(crate) async fn write_once_if_there(
        &self,
        dirs: &[NodePath],
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<bool, PutError> {
        self.write_unless_gone(dirs, Some(AFTER_RECEIPT), fill)
            .await
    }

    /// `false` if the write of that index misses its node.
    async fn write_unless_gone(
        &self,
        dirs: &[NodePath],
        index_of_gone: Option<usize>,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<bool, PutError> {
        let path = || self.path().to_owned();
        let mut last = zk::Error::NO_NODE;
        for _ in 0..TRIES_MAX {
            match self.receipts().once(&fill).await {
                Ok(_) => return Ok(true),
                Err(OnceError::Refused(zk::MultiError::Refused {
                    index,
                    code: zk::ErrorCode::NoNode,
                })) if index_of_gone == Some(index) => return Ok(false),
                Err(OnceError::Refused(error)) => match zk::Error::from(error) {
                    zk::Error::NO_NODE => {
                        // Refused as a whole, so nothing was written. Empty directories are removed by the servers, so they
                        // may vanish again before the next try.
                        let made = self.make(dirs).await;
                        made.map_err(|failure| PutError::new(failure, self.path()))?;
                        last = zk::Error::NO_NODE;
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
                Err(OnceError::TooManyEphemerals { bytes }) => {
                    return Err(PutError::TooManyEphemerals {
                        path: path(),
                        bytes,
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
        let dir_bytes = self.items_dir(self.shards - 1).as_str().len();
        let create_bytes = dir_bytes + NAME_BYTES_MAX + WRITE_OVERHEAD_BYTES + self.access.bytes();
        let mut batch_bytes = 0;
        for (_, data) in items {
            if data.len() > self.item_bytes_max {
                return Err(Failure::TooLarge {
                    bytes: data.len(),
                    bytes_max: self.item_bytes_max,
                });
            }
            batch_bytes += data.len() + create_bytes;
        }
        check_bytes(batch_bytes)?;
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

    /// Refuses the task of a name that stands so often in one request.
    pub(crate) fn check_named(
        &self,
        name: &str,
        data: &[u8],
        writes: usize,
    ) -> Result<(), Failure> {
        let path_bytes = self.dir("items").child(name).len();
        check_bytes(data.len() + writes * (path_bytes + WRITE_OVERHEAD_BYTES + self.access.bytes()))
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

fn check_bytes(bytes: usize) -> Result<(), Failure> {
    match bytes > BATCH_BYTES_MAX {
        true => Err(Failure::TooLarge {
            bytes,
            bytes_max: BATCH_BYTES_MAX,
        }),
        false => Ok(()),
    }
}
