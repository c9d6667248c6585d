//! Putting items, each exactly once.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bellwether_client::environment;

use crate::line::Failure;
use crate::line::contender::SEQUENCE_MAX;
use crate::node::data::Payload;
use crate::node::{NodePath, WRITE_OVERHEAD_BYTES};
use crate::queue::core::QueueCore;
use crate::queue::error::PutError;
use crate::queue::order::{DUE_MIN, Item, ItemId, Order, to_ms};
use crate::queue::{DelayQueue, OrderedQueue, PriorityQueue, Queue};
use crate::request::receipts::{OnceError, Operation};
use crate::session::retry::Retry;
use crate::session::telemetry::call;

/// How many items there may be unless set. Their names take less than 50 bytes each, and clients of default settings read
/// no list beyond 1 MiB.
pub(crate) const DEPTH_MAX: usize = 10_000;

/// How large an item may be unless set: a claim writes it again, and a batch or a read-ahead holds several.
pub(crate) const ITEM_BYTES_MAX: usize = 64 << 10;

/// An item has to fit into one request together with the record of its end.
const BATCH_BYTES_MAX: usize = 900 << 10;

/// The index of the first write of an exactly-once multi: the receipt comes first.
const AFTER_RECEIPT: usize = 1;

/// The longest name of an item: rank, id and sequence.
const NAME_BYTES_MAX: usize = 50;

impl<T: Payload> Queue<T> {
    /// Puts an item exactly once, even if a reply is lost. One round trip.
    ///
    /// # Errors
    ///
    /// See [`PutError`]. Only after [`PutError::OutcomeUnknown`] the item may have been put.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put(&self, payload: &T) -> Result<ItemId, PutError> {
        call!("queue.put", self.path())
            .run(self.put_one(0, payload))
            .await
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
        call!("queue.put_all", self.path())
            .run(self.put_all_untraced(payloads))
            .await
    }

    async fn put_all_untraced(&self, payloads: &[T]) -> Result<Vec<ItemId>, PutError> {
        let items = payloads.iter().map(|payload| (0, payload)).collect();
        self.put_ranked(items).await
    }
}

impl<T: Payload> PriorityQueue<T> {
    /// Puts an item, exactly once; the lowest priority is taken first. One round trip.
    ///
    /// # Errors
    ///
    /// See [`PutError`]. Only after [`PutError::OutcomeUnknown`] the item may have been put.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put(&self, priority: u32, payload: &T) -> Result<ItemId, PutError> {
        call!("queue.put", self.path())
            .run(self.put_one(priority.into(), payload))
            .await
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
        call!("queue.put_all", self.path())
            .run(self.put_all_untraced(items))
            .await
    }

    async fn put_all_untraced(&self, items: &[(u32, T)]) -> Result<Vec<ItemId>, PutError> {
        let items = items
            .iter()
            .map(|(priority, payload)| (u64::from(*priority), payload));
        self.put_ranked(items.collect()).await
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
    /// See [`PutError`]. Only after [`PutError::OutcomeUnknown`] the item may have been put.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item may have been put or not.
    pub async fn put_at(&self, due: SystemTime, payload: &T) -> Result<ItemId, PutError> {
        call!("queue.put", self.path())
            .run(self.put_one(to_ms(due).max(DUE_MIN), payload))
            .await
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
        call!("queue.put", self.path())
            .run(async {
                // A time beyond the range is never reached.
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let due_ms = to_ms(environment::system_time()).saturating_add(delay_ms);
                self.put_one(due_ms, payload).await
            })
            .await
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
        self.core.now_to_put().await?.put(written).await
    }

    async fn put_one(&self, rank: u64, payload: &T) -> Result<ItemId, PutError> {
        let mut ids = self.put_ranked(vec![(rank, payload)]).await?;
        Ok(ids.pop().expect("one was put"))
    }
}

/// How many puts are made without a look at the depth: a tenth of the room that is left.
#[derive(Debug, Default)]
pub(crate) struct Credit(AtomicI64);

impl Credit {
    fn spend(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.fetch_sub(count, Ordering::Relaxed) >= count
    }

    fn set(&self, reserved: usize) {
        let credit = i64::try_from(reserved / 10).unwrap_or(i64::MAX);
        self.0.store(credit, Ordering::Relaxed);
    }
}

impl QueueCore {
    /// Puts items in one multi: all or none, and once.
    pub(crate) async fn put(&self, items: Vec<(u64, Vec<u8>)>) -> Result<Vec<ItemId>, PutError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        self.check_room(&items)
            .await
            .map_err(|failure| PutError::new(failure, self.path()))?;
        let dir = self.dir("items");
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
            self.cache().outdate();
        }
        Ok(ids)
    }

    /// As [`now`](Self::now), for verbs that write.
    pub(crate) async fn now_to_put(&self) -> Result<Self, PutError> {
        Ok(self.now().await?)
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

    /// `false` if the write of that index found no node.
    async fn write_unless_gone(
        &self,
        dirs: &[NodePath],
        index_of_gone: Option<usize>,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<bool, PutError> {
        let mut retry = Retry::limited();
        let mut operation = self.operation()?;
        loop {
            match operation.send(&fill).await {
                Ok(_) => return Ok(true),
                Err(OnceError::Refused(zk::MultiError::Refused {
                    index,
                    code: zk::ErrorCode::NoNode,
                })) if index_of_gone == Some(index) => return Ok(false),
                // Refused as a whole, so nothing was written. Empty directories are removed by the servers, so they may vanish again
                // before the next try.
                Err(OnceError::Refused(error)) if zk::Error::from(error) == zk::Error::NO_NODE => {
                    let made = self.make_to_put(dirs).await;
                    let again = made.and_then(|()| Ok(retry.again_after(Ok(()))?));
                    again.map_err(|failure| PutError::new(failure, self.path()))?;
                }
                Err(error) => return Err(self.not_written(error)),
            }
        }
    }

    fn operation(&self) -> Result<Operation<'_>, PutError> {
        let operation = self.receipts().operation();
        operation.map_err(|error| self.not_written(error))
    }

    fn not_written(&self, error: OnceError) -> PutError {
        let path = self.path().to_owned();
        match error {
            OnceError::Refused(error) => PutError::Refused {
                path,
                source: error.into(),
            },
            OnceError::SessionEnded => PutError::SessionEnded { path },
            OnceError::OutcomeUnknown(source) => PutError::OutcomeUnknown { path, source },
            OnceError::TooManyEphemerals { bytes } => PutError::TooManyEphemerals { path, bytes },
        }
    }

    /// Refuses an item that is too large, or a put to a full queue. The depth is read now and then, and at every put when it is close to
    /// the limit; concurrent puts do not see each other, so they may exceed the limit by their number.
    pub(crate) async fn check_room(&self, items: &[(u64, Vec<u8>)]) -> Result<(), Failure> {
        let dir_bytes = self.dir("items").as_str().len();
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
        let counts = self.look_in_order().await?;
        if counts.puts >= i64::from(SEQUENCE_MAX) {
            return Err(Failure::SequenceUsedUp);
        }
        let after = counts.depth + items.len();
        if after > self.depth_max {
            self.credit.set(0);
            return Err(Failure::LineFull {
                depth: counts.depth,
            });
        }
        self.credit.set(self.depth_max - after);
        Ok(())
    }

    /// Refuses a task whose name is so long that the request would be too large.
    pub(crate) fn check_named(
        &self,
        name: &str,
        data: &[u8],
        writes: usize,
    ) -> Result<(), Failure> {
        let path_bytes = self.dir("items").child(name).len();
        check_bytes(data.len() + writes * (path_bytes + WRITE_OVERHEAD_BYTES + self.access.bytes()))
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
