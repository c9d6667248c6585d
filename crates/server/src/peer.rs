//! A connection, as the rest of the server knows it: who it is and where its replies go.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use tokio::sync::Notify;

use crate::outbox::{Outbox, Place};
use crate::peer_address::PeerAddress;
use crate::proto::acl::Id;
use crate::proto::code::ErrorCode;
use crate::proto::reply;
use crate::request::Request;
use crate::stats::{PeerStats, PeerWatches};

/// The shared half of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Never given twice.
    pub(crate) number: u64,
    pub(crate) address: PeerAddress,
    pub(crate) outbox: Outbox,
    pub(crate) stats: PeerStats,
    pub(crate) watches: PeerWatches,
    session_id: AtomicI64,
    ids: Mutex<Arc<[Id]>>,
    outstanding: AtomicUsize,
    answered: Notify,
    paused: AtomicBool,
}

impl Peer {
    pub(crate) fn new(number: u64, address: PeerAddress, outbox: Outbox) -> Self {
        let ids: Arc<[Id]> = Arc::new([address.id()]);
        Self {
            number,
            address,
            outbox,
            stats: PeerStats::default(),
            watches: PeerWatches::default(),
            session_id: AtomicI64::new(0),
            ids: Mutex::new(ids),
            outstanding: AtomicUsize::new(0),
            answered: Notify::new(),
            paused: AtomicBool::new(false),
        }
    }

    /// The session that it has, 0 before it has one.
    pub(crate) fn session_id(&self) -> i64 {
        self.session_id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_session_id(&self, id: i64) {
        self.session_id.store(id, Ordering::Relaxed);
    }

    /// Who is at the other end, as far as is known by now.
    pub(crate) fn ids(&self) -> Arc<[Id]> {
        self.ids.lock().expect("never panics inside").clone()
    }

    pub(crate) fn set_ids(&self, ids: Arc<[Id]>) {
        *self.ids.lock().expect("never panics inside") = ids;
    }

    /// Answers a request: a header, and a body if nothing went wrong.
    pub(crate) fn reply(
        &self,
        request: &Request,
        zxid: i64,
        outcome: Result<(), ErrorCode>,
        body: impl FnOnce(&mut BytesMut),
    ) {
        self.stats.answered(request, zxid);
        self.outbox
            .push(|out| reply::put(out, request.xid, zxid, outcome, body));
    }

    /// Answers a request whose place in the outbox is reserved.
    pub(crate) fn reply_in(
        &self,
        place: Place,
        request: &Request,
        zxid: i64,
        outcome: Result<(), ErrorCode>,
        body: impl FnOnce(&mut BytesMut),
    ) {
        self.stats.answered(request, zxid);
        self.outbox.fill(place, |out| {
            reply::put(out, request.xid, zxid, outcome, body)
        });
    }

    /// How many requests of this connection wait for the disk, or to be computed.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    pub(crate) fn request_waits(&self) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
    }

    /// # Panics
    ///
    /// If nothing waited: a count that wraps around would keep the connection from being read for ever.
    pub(crate) fn request_waits_no_more(&self) {
        let before = self.outstanding.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a request was answered twice");
        if before == 1 {
            self.answered.notify_waiters();
        }
    }

    /// Resolves when nothing of this connection waits any more. Until then it is not read, and
    /// that is no fault of the client: its session counts as alive.
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

    /// Whether the server has stopped reading this connection of its own accord.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }
}
