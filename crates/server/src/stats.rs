//! What is counted, for the four-letter words.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::proto::op::Op;
use crate::request::Request;

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

    /// The smallest, 0 if there was none.
    pub(crate) fn min_ms(&self) -> u64 {
        match self.min_ms.load(Relaxed) {
            u64::MAX => 0,
            ms => ms,
        }
    }

    pub(crate) fn max_ms(&self) -> u64 {
        self.max_ms.load(Relaxed)
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(crate) fn average_ms(&self) -> f64 {
        match self.count.load(Relaxed) {
            0 => 0.0,
            count => self.sum_ms.load(Relaxed) as f64 / count as f64,
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

/// What is counted of one connection.
#[derive(Debug, Default)]
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

impl PeerStats {
    pub(crate) fn answered(&self, request: &Request, zxid: i64) {
        let ms = elapsed_ms(request.received);
        self.sent.fetch_add(1, Relaxed);
        self.latency.add(ms);
        self.last_latency_ms.store(ms, Relaxed);
        self.last_op.store(request.op.map_or(0, Op::number), Relaxed);
        if request.xid > 0 {
            self.last_cxid.store(request.xid, Relaxed);
        }
        if zxid > 0 {
            self.last_zxid.store(zxid, Relaxed);
        }
        self.last_response_ms.store(crate::clock::wall_ms(), Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.received.store(0, Relaxed);
        self.sent.store(0, Relaxed);
        self.latency.reset();
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
