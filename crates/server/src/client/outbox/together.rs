//! Total bytes in all outboxes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::metrics::{Limit, Meters};

/// Total bytes in all outboxes.
#[derive(Debug)]
pub(crate) struct Together {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// All bytes ever put in, sent or not.
    put_bytes: AtomicU64,
    meters: Arc<Meters>,
}

impl Together {
    pub(crate) fn new(bytes_max: usize, meters: Arc<Meters>) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
            put_bytes: AtomicU64::new(0),
            meters,
        }
    }

    /// Bytes that wait now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes put in so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.put_bytes.load(Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max
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
