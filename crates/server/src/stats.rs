//! Counters and latencies of the server and of each connection, for the four-letter words.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bellwether_wire::op::Op;

use crate::metrics::Meters;

/// Minimum, maximum, sum and count of a series of measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Meaningless if `count` is 0: a running minimum starts at `u64::MAX`.
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: u64,
    pub(crate) count: u64,
}

/// Latencies in milliseconds: minimum, maximum, and the sum and count for the average.
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

    /// Reads the current values.
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

/// Counters of the whole server.
#[derive(Debug, Default)]
pub(crate) struct ServerStats {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) outstanding: AtomicU64,
    /// Total size of the outstanding requests.
    pub(crate) outstanding_bytes: AtomicU64,
    pub(crate) latency: Latency,
    pub(crate) connections_rejected: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) sessions_rejected: AtomicU64,
    /// TLS connections whose handshake failed or timed out.
    pub(crate) tls_handshakes_failed: AtomicU64,
    pub(crate) sessions_expired: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) meters: Arc<Meters>,
}

impl ServerStats {
    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.latency.reset();
    }

    /// Counts the reply to a request that took this long.
    pub(crate) fn answered(&self, took: Duration) {
        self.sent.fetch_add(1, Relaxed);
        self.latency.add(in_ms(took));
    }
}

/// Number and size of watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WatchUse {
    pub(crate) watches: usize,
    /// Total length of the watched paths.
    pub(crate) bytes: usize,
}

/// Watches of one connection. Modified only under the lock of the watch table.
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

/// `last_cxid` of a connection that has sent no request that counts.
pub(crate) const NO_CXID: i32 = -1;

/// Counters of one connection.
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
    /// Wall-clock time of the last reply.
    pub(crate) last_response_ms: AtomicI64,
    /// Meters of the whole server.
    pub(crate) meters: Arc<Meters>,
}

impl PeerStats {
    pub(crate) fn new(meters: Arc<Meters>) -> Self {
        Self {
            meters,
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

    /// Counts the reply to a request received at `received`, and returns how long it took; the reply is an error unless `is_ok`.
    pub(crate) fn answered(
        &self,
        op: Option<Op>,
        xid: i32,
        received: Instant,
        (zxid, is_ok): (i64, bool),
    ) -> Duration {
        let took = received.elapsed();
        self.meters.answered(op, took, is_ok);
        let ms = in_ms(took);
        self.sent.fetch_add(1, Relaxed);
        self.latency.add(ms);
        self.last_latency_ms.store(ms, Relaxed);
        self.last_op.store(op.map_or(0, Op::number), Relaxed);
        if xid >= 0 {
            self.last_cxid.store(xid, Relaxed);
        }
        if zxid > 0 {
            self.last_zxid.store(zxid, Relaxed);
        }
        self.last_response_ms
            .store(crate::clock::wall_ms(), Relaxed);
        took
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

/// Like `as_millis`, without its 128-bit arithmetic.
fn in_ms(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1000);
    seconds.saturating_add(u64::from(time.subsec_millis()))
}
