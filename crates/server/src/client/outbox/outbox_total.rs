//! Total bytes in all outboxes, and bytes that several of them hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use crate::metrics::{Limit, Meters};

/// Total bytes in all outboxes.
#[derive(Debug)]
pub(crate) struct OutboxTotal {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    /// All bytes ever put in, sent or not.
    put_bytes: AtomicU64,
    meters: Arc<Meters>,
}

impl OutboxTotal {
    pub(crate) fn new(bytes_max: usize, meters: Arc<Meters>) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
            put_bytes: AtomicU64::new(0),
            meters,
        }
    }

    pub(crate) fn set_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Bytes that wait now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes put in so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.put_bytes.load(Relaxed)
    }

    /// Bytes that several outboxes hold. They are counted once, until the last of them has written or dropped them.
    pub(crate) fn share(self: &Arc<Self>, bytes: &[u8]) -> Bytes {
        self.count(0, bytes.len());
        Bytes::from_owner(Shared {
            bytes: bytes.into(),
            together: self.clone(),
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max.load(Relaxed)
    }

    /// Counts bytes that are put into an outbox.
    pub(super) fn put(&self, bytes: usize) {
        self.put_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a client that is disconnected because it does not read.
    pub(super) fn overflow(&self) {
        self.meters.reach(Limit::OutboxBytes);
    }

    /// Replaces the contribution `before` of an outbox by `after`.
    pub(super) fn count(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Relaxed);
        }
    }
}

/// Bytes that several outboxes hold.
#[derive(Debug)]
struct Shared {
    bytes: Box<[u8]>,
    together: Arc<OutboxTotal>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.together.count(self.bytes.len(), 0);
    }
}
