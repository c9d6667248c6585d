//! The order in which one session is served.
//!
//! Writes leave for the writer and come back when they are on disk. Reads need nobody's disk, but
//! a read that came behind a write of its own session waits for it here, and is answered from the
//! very version that the write made.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;

use crate::peer::Peer;
use crate::request::Request;

/// One session's place in the flow: which connection may speak for it, and what waits.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    peer: Option<Arc<Peer>>,
    /// Writes handed to the writer, and those of them that were published.
    accepted: u64,
    published: u64,
    /// What waits, each with the number of writes that must be published before.
    parked: VecDeque<(u64, Parked)>,
}

/// What waits for the writes before it.
#[derive(Debug)]
pub(crate) enum Parked {
    /// A read of this session.
    Read(Request),
    /// The answer to a client that came back: all that it had asked for before is settled then.
    ConnectReply { peer: Arc<Peer>, frame: BytesMut },
}

impl Lane {
    /// Whether this connection speaks for the session now.
    pub(crate) fn belongs_to(&self, peer: &Arc<Peer>) -> bool {
        self.peer
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, peer))
    }

    /// The connection that speaks for the session.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// Hands the session to a connection and returns the one before: nothing more is accepted
    /// from that.
    pub(crate) fn attach(&mut self, peer: Arc<Peer>) -> Option<Arc<Peer>> {
        self.peer.replace(peer)
    }

    /// Leaves the session without a connection, if `peer` is still its.
    pub(crate) fn detach(&mut self, peer: &Arc<Peer>) {
        if self.belongs_to(peer) {
            self.peer = None;
        }
    }

    /// Notes that a write was handed to the writer, and tells whether reads wait between it and the
    /// write before: they must not see it.
    pub(crate) fn accept_write(&mut self) -> bool {
        let behind_reads = self
            .parked
            .back()
            .is_some_and(|(after, _)| *after == self.accepted);
        self.accepted += 1;
        behind_reads
    }

    /// Notes that the next write was published.
    pub(crate) fn write_published(&mut self) {
        self.published += 1;
        debug_assert!(
            self.published <= self.accepted,
            "published what was never accepted"
        );
    }

    /// Whether nothing of this session is under way, so that a read need not wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.published == self.accepted
    }

    /// Keeps `work` until all writes accepted so far are published.
    pub(crate) fn park(&mut self, work: Parked) {
        self.parked.push_back((self.accepted, work));
    }

    /// Whether something waits no more.
    pub(crate) fn has_due(&self) -> bool {
        self.parked
            .front()
            .is_some_and(|(after, _)| *after <= self.published)
    }

    /// The next thing that waits no more.
    pub(crate) fn unpark(&mut self) -> Option<Parked> {
        if !self.has_due() {
            return None;
        }
        self.parked.pop_front().map(|(_, work)| work)
    }
}
