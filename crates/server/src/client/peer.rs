//! A connection as the rest of the server sees it: identity, counters and outbox.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_wire::acl::Id;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::reply;
use bytes::BytesMut;
use tokio::sync::Notify;

use crate::client::PeerAddress;
use crate::client::Request;
use crate::client::outbox::{Outbox, Place};
use crate::client::usage::{Traffic, Usage};
use crate::metrics::{Limit, Meters};
use crate::stats::{PeerStats, PeerWatches};

/// The shared half of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Unique for the life of the server.
    pub(crate) number: u64,
    pub(crate) address: PeerAddress,
    pub(crate) outbox: Outbox,
    pub(crate) stats: PeerStats,
    pub(crate) traffic: Traffic,
    pub(crate) watches: PeerWatches,
    session_id: AtomicI64,
    ids: Mutex<Arc<[Id]>>,
    outstanding: AtomicUsize,
    answered: Notify,
    paused: AtomicBool,
    receiver_index: AtomicUsize,
}

impl Peer {
    pub(crate) fn new(
        number: u64,
        address: PeerAddress,
        outbox: Outbox,
        meters: Arc<Meters>,
    ) -> Self {
        let ids: Arc<[Id]> = Arc::new([address.id()]);
        Self {
            number,
            address,
            outbox,
            stats: PeerStats::new(meters),
            traffic: Traffic::default(),
            watches: PeerWatches::default(),
            session_id: AtomicI64::new(0),
            ids: Mutex::new(ids),
            outstanding: AtomicUsize::new(0),
            answered: Notify::new(),
            paused: AtomicBool::new(false),
            receiver_index: AtomicUsize::new(0),
        }
    }

    /// Session of the connection; 0 if it has none yet.
    pub(crate) fn session_id(&self) -> i64 {
        self.session_id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_session_id(&self, id: i64) {
        self.session_id.store(id, Ordering::Relaxed);
    }

    /// What the connection has used so far.
    pub(super) fn usage(&self) -> Usage {
        self.traffic.usage(self.outbox.put_bytes())
    }

    /// Ids that the connection has proven so far.
    pub(crate) fn ids(&self) -> Arc<[Id]> {
        self.ids.lock().expect("never panics inside").clone()
    }

    pub(crate) fn set_ids(&self, ids: Arc<[Id]>) {
        *self.ids.lock().expect("never panics inside") = ids;
    }

    /// Counts a reply, and returns how long it took; it is an error unless `is_ok`.
    pub(crate) fn count_answer(&self, request: &Request, zxid: i64, is_ok: bool) -> Duration {
        let Request {
            op, xid, received, ..
        } = request;
        self.stats.answered(*op, *xid, *received, (zxid, is_ok))
    }

    /// Sends a reply: a header, and a body unless it is an error.
    pub(crate) fn reply(
        &self,
        request: &Request,
        zxid: i64,
        outcome: Result<(), ErrorCode>,
        body: impl FnOnce(&mut BytesMut),
    ) {
        self.count_answer(request, zxid, outcome.is_ok());
        self.outbox
            .push(|out| reply::put(out, request.xid, zxid, outcome, body));
    }

    /// Sends a reply whose place in the outbox is reserved.
    pub(crate) fn reply_in(
        &self,
        place: Place,
        request: &Request,
        zxid: i64,
        outcome: Result<(), ErrorCode>,
        body: impl FnOnce(&mut BytesMut),
    ) {
        self.count_answer(request, zxid, outcome.is_ok());
        // Encoded before the outbox is locked: this takes long, and others push events there.
        let mut content = BytesMut::new();
        reply::put(&mut content, request.xid, zxid, outcome, body);
        self.outbox.fill(place, content);
    }

    /// Counts that this connection has reached a limit.
    pub(crate) fn reach(&self, limit: Limit) {
        self.stats.meters.reach(limit);
    }

    /// Number of requests of this connection that wait for the disk or are being computed.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    pub(crate) fn request_waits(&self) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
    }

    /// # Panics
    ///
    /// If no request is outstanding: a count that wraps around would stop the connection from being read for ever.
    pub(crate) fn request_waits_no_more(&self) {
        let before = self.outstanding.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a request was answered twice");
        if before == 1 {
            self.answered.notify_waiters();
        }
    }

    /// Resolves when no request of this connection is outstanding. Until then the connection is not read. That is not the client's fault,
    /// so its session counts as alive.
    pub(crate) async fn drained(&self) {
        self.paused.store(true, Ordering::Release);
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.outstanding() == 0 {
                break;
            }
            answered.await;
        }
        self.paused.store(false, Ordering::Release);
    }

    /// Index of this connection in the list of receivers that a publisher made last. A hint, which saves a search: that list may be gone.
    pub(crate) fn receiver_index(&self) -> usize {
        self.receiver_index.load(Ordering::Relaxed)
    }

    pub(crate) fn set_receiver_index(&self, index: usize) {
        self.receiver_index.store(index, Ordering::Relaxed);
    }

    /// Whether the server has paused reading this connection.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }
}
