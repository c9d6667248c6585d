//! The order in which one session is served.
//!
//! Writes go to the writer and return when they are on disk. Reads need no disk, but a read after a write of the same session waits here
//! for that write, and is answered from the version that the write made.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;

use crate::client::Peer;
use crate::client::Request;

/// Queue of one session: its current connection, and the reads that wait for writes.
#[derive(Debug, Default)]
pub(crate) struct RequestOrder {
    peer: Option<Arc<Peer>>,
    /// Number of writes submitted, and of those published.
    accepted: u64,
    published: u64,
    /// Waiting work, each with the number of writes that must be published before it.
    parked: VecDeque<(u64, Parked)>,
}

/// Work that waits for earlier writes.
#[derive(Debug)]
pub(crate) enum Parked {
    /// A read of this session.
    Read(Request),
    /// The reply to a client that resumes the session: all of its earlier requests are settled by then.
    ConnectReply { peer: Arc<Peer>, frame: BytesMut },
}

impl RequestOrder {
    /// Whether `peer` is the current connection of the session.
    pub(crate) fn belongs_to(&self, peer: &Arc<Peer>) -> bool {
        self.peer
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, peer))
    }

    /// The current connection of the session.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// Moves the session to a connection and returns the previous one, from which no further request is accepted.
    pub(crate) fn attach(&mut self, peer: Arc<Peer>) -> Option<Arc<Peer>> {
        self.peer.replace(peer)
    }

    /// Detaches `peer` if it is still the current connection.
    pub(crate) fn detach(&mut self, peer: &Arc<Peer>) {
        if self.belongs_to(peer) {
            self.peer = None;
        }
    }

    /// Counts a submitted write. Returns whether reads wait between it and the previous write: they must not see it.
    pub(crate) fn accept_write(&mut self) -> bool {
        let behind_reads = self
            .parked
            .back()
            .is_some_and(|(after, _)| *after == self.accepted);
        self.accepted += 1;
        behind_reads
    }

    /// Counts a published write.
    pub(crate) fn write_published(&mut self) {
        self.published += 1;
        debug_assert!(
            self.published <= self.accepted,
            "published what was never accepted"
        );
    }

    /// Whether no write of this session is in progress, so that a read need not wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.published == self.accepted
    }

    /// Keeps `work` until all writes accepted so far are published.
    pub(crate) fn park(&mut self, work: Parked) {
        self.parked.push_back((self.accepted, work));
    }

    /// Whether some work is due.
    pub(crate) fn has_due(&self) -> bool {
        self.parked
            .front()
            .is_some_and(|(after, _)| *after <= self.published)
    }

    /// Takes the next work that is due.
    pub(crate) fn unpark(&mut self) -> Option<Parked> {
        if !self.has_due() {
            return None;
        }
        self.parked.pop_front().map(|(_, work)| work)
    }
}
