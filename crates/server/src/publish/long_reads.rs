//! Queue of reads that take long, for the threads that compute them.
//!
//! Under the lock such a read only arms its watch and reserves its place in the outbox. Its reply is computed later from the version of
//! that moment, which copy-on-write makes free to keep. Connections take turns (round robin), so a connection with many long reads delays
//! only itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::client::Request;
use crate::client::outbox::Place;
use crate::tree::Tree;

/// Estimated reply size in bytes above which a read counts as long.
pub(super) const LONG_BYTES: usize = 64 << 10;

/// Assumed length of a child name, path or access list entry, so that only their number is needed to estimate a reply.
pub(super) const ITEM_BYTES: usize = 32;

/// A read whose place in the outbox is reserved.
#[derive(Debug)]
pub(super) struct LongRead {
    pub(super) tree: Tree,
    pub(super) session_id: i64,
    pub(super) request: Request,
    pub(super) place: Place,
}

/// All reads waiting to be computed.
#[derive(Debug, Default)]
pub(super) struct LongReads {
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// Numbers of the connections with reads here, each once, in the order of their turns.
    turns: VecDeque<u64>,
    by_peer: HashMap<u64, VecDeque<LongRead>>,
    is_stopped: bool,
}

impl LongReads {
    /// Enqueues a read. Their number is limited: a connection is not read while it has requests outstanding and all connections together
    /// have too many.
    pub(super) fn push(&self, read: LongRead) {
        let mut line = self.lock();
        let number = read.request.peer.number;
        let reads = line.by_peer.entry(number).or_default();
        reads.push_back(read);
        if reads.len() == 1 {
            line.turns.push_back(number);
            drop(line);
            self.changed.notify_one();
        }
    }

    /// Waits for the next read; `None` after [`stop`](Self::stop).
    pub(super) fn next(&self) -> Option<LongRead> {
        let line = self.lock();
        let waits = |line: &mut Line| line.turns.is_empty() && !line.is_stopped;
        let line = self
            .changed
            .wait_while(line, waits)
            .expect("never panics inside");
        self.take(line)
    }

    /// The next read, if there is one.
    #[cfg(feature = "simulation")]
    pub(super) fn try_next(&self) -> Option<LongRead> {
        self.take(self.lock())
    }

    fn take(&self, mut line: MutexGuard<'_, Line>) -> Option<LongRead> {
        if line.is_stopped {
            return None;
        }
        let number = line.turns.pop_front()?;
        let reads = line.by_peer.get_mut(&number)?;
        let read = reads.pop_front();
        if reads.is_empty() {
            line.by_peer.remove(&number);
        } else {
            line.turns.push_back(number);
            // Without the lock: a wake-up is where a thread of low priority may have to stop, and others need the lock.
            drop(line);
            self.changed.notify_one();
        }
        read
    }

    /// Ends the threads. Reads still queued are dropped.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("never panics inside")
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::time::Instant;

    use bytes::Bytes;

    use super::*;
    use crate::client::Peer;
    use crate::client::PeerAddress;
    use crate::client::outbox::{Outbox, OutboxTotal};

    #[test]
    fn connections_take_turns() {
        let reads = LongReads::default();
        let together = Arc::new(OutboxTotal::new(usize::MAX, Arc::default()));
        let outbox = || Outbox::new(0, together.clone());
        let address = PeerAddress::Tcp((Ipv4Addr::LOCALHOST, 2181).into());
        let peers =
            [1, 2].map(|number| Arc::new(Peer::new(number, address, outbox(), Arc::default())));
        for (peer, xid) in [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)] {
            let peer: &Arc<Peer> = &peers[peer];
            reads.push(LongRead {
                tree: Tree::fresh(),
                session_id: 1,
                place: peer.outbox.reserve(),
                request: Request {
                    peer: peer.clone(),
                    xid,
                    op: None,
                    body: Bytes::new(),
                    ids: peer.ids(),
                    received: Instant::now(),
                },
            });
        }
        let order = [(); 5].map(|()| reads.next().unwrap().request.xid);
        assert_eq!(order, [1, 4, 2, 5, 3]);
        reads.stop();
        assert!(reads.next().is_none());
    }
}
