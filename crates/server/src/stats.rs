//! What is counted, for the four-letter words.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::proto::op::Op;
use crate::request::Request;

/// What is known of many measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The smallest; any number if there were none, so that a running minimum can start high.
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: u64,
    pub(crate) count: u64,
}

/// Latencies in milliseconds: the smallest, the largest, and what an average needs.
#[derive(Debug)]
pub(crate) struct Latency {
    min_ms: AtomicU64,
    max_ms: AtomicU64,
    sum_ms: AtomicU64,
    count: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            min_ms: AtomicU64::new(u64::MAX),
            max_ms: AtomicU64::new(0),
            sum_ms: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }
}

impl Latency {
    pub(crate) fn add(&self, ms: u64) {
        self.min_ms.fetch_min(ms, Relaxed);
        self.max_ms.fetch_max(ms, Relaxed);
        self.sum_ms.fetch_add(ms, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    /// What is shown of it.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            min: self.min_ms.load(Relaxed),
            max: self.max_ms.load(Relaxed),
            sum: self.sum_ms.load(Relaxed),
            count: self.count.load(Relaxed),
        }
    }

    pub(crate) fn reset(&self) {
        self.min_ms.store(u64::MAX, Relaxed);
        for number in [&self.max_ms, &self.sum_ms, &self.count] {
            number.store(0, Relaxed);
        }
    }
}

/// What is counted of the server as a whole.
#[derive(Debug, Default)]
pub(crate) struct ServerStats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) outstanding: AtomicU64,
    /// The bytes of those requests.
    pub(crate) outstanding_bytes: AtomicU64,
    pub(crate) latency: Latency,
    pub(crate) connections_rejected: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) sessions_expired: AtomicU64,
    pub(crate) commits: AtomicU64,
}

impl ServerStats {
    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.latency.reset();
    }

    /// Counts the answer to a request that came at `received`.
    pub(crate) fn answered(&self, received: Instant) {
        self.sent.fetch_add(1, Relaxed);
        self.latency.add(elapsed_ms(received));
    }
}

/// How much is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WatchUse {
    pub(crate) watches: usize,
    /// The bytes of their paths.
    pub(crate) bytes: usize,
}

/// What one connection watches. It is changed under the lock of the watches only.
#[derive(Debug, Default)]
pub(crate) struct PeerWatches {
    watches: AtomicUsize,
    bytes: AtomicUsize,
}

impl PeerWatches {
    pub(crate) fn add(&self, path: &str) {
        self.watches.fetch_add(1, Relaxed);
        self.bytes.fetch_add(path.len(), Relaxed);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.watches.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(path.len(), Relaxed);
    }

    pub(crate) fn get(&self) -> WatchUse {
        WatchUse {
            watches: self.watches.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

/// Stands for the xid of the last request while there was none that counts.
pub(crate) const NO_CXID: i32 = -1;

/// What is counted of one connection.
#[derive(Debug)]
pub(crate) struct PeerStats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) latency: Latency,
    pub(crate) established_ms: AtomicI64,
    pub(crate) last_op: AtomicI32,
    pub(crate) last_cxid: AtomicI32,
    pub(crate) last_zxid: AtomicI64,
    pub(crate) last_latency_ms: AtomicU64,
    pub(crate) last_response_ms: AtomicI64,
}

impl Default for PeerStats {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            latency: Latency::default(),
            established_ms: AtomicI64::new(0),
            last_op: AtomicI32::new(0),
            last_cxid: AtomicI32::new(NO_CXID),
            last_zxid: AtomicI64::new(-1),
            last_latency_ms: AtomicU64::new(0),
            last_response_ms: AtomicI64::new(0),
        }
    }
}

impl PeerStats {
    pub(crate) fn answered(&self, request: &Request, zxid: i64) {
        let ms = elapsed_ms(request.received);
        self.sent.fetch_add(1, Relaxed);
        self.latency.add(ms);
        self.last_latency_ms.store(ms, Relaxed);
        self.last_op
            .store(request.op.map_or(0, Op::number), Relaxed);
        if request.xid >= 0 {
            self.last_cxid.store(request.xid, Relaxed);
        }
        if zxid > 0 {
            self.last_zxid.store(zxid, Relaxed);
        }
        self.last_response_ms
            .store(crate::clock::wall_ms(), Relaxed);
    }

    pub(crate) fn reset(&self) {
        for number in [&self.received, &self.sent, &self.last_latency_ms] {
            number.store(0, Relaxed);
        }
        self.latency.reset();
        self.last_op.store(0, Relaxed);
        self.last_cxid.store(NO_CXID, Relaxed);
        self.last_zxid.store(-1, Relaxed);
        self.last_response_ms.store(0, Relaxed);
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
