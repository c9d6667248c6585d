//! The version that readers see, and the moment in which it changes.
//!
//! One lock orders everything that a client can observe. A read holds it shared while it takes its
//! answer from the version, arms its watch and puts the reply on its way; a write holds it
//! exclusively while its version becomes visible and its events and its reply are put on theirs.
//! So an event comes before any reply that shows its change, and never before the reply that armed
//! its watch. The order of locks: the version, then a session's lane, then watches or an outbox.
//! Nothing is written to a socket before the lock is gone, and nothing that takes long is done under it: such a
//! read reserves the place of its reply.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use bytes::BytesMut;

use super::long_reads::{LongRead, LongReads};
use super::reads::Read;
use super::watch_limits::WatchLimits;
use super::watches::{WatchReport, Watches};
use crate::peer::Peer;
use crate::proto::op::Op;
use crate::request::Request;
use crate::session::{Parked, Session, SessionTable};
use crate::stats::ServerStats;
use crate::tree::Tree;
use crate::writer::{Answer, Decided, Group};

/// What everybody sees.
#[derive(Debug)]
pub(crate) struct Published {
    committed: RwLock<Tree>,
    watches: Mutex<Watches>,
    /// Digests of some versions, for comparison with another server.
    digests: Mutex<VecDeque<(i64, u64)>>,
    long_reads: LongReads,
    sessions: Arc<SessionTable>,
    stats: Arc<ServerStats>,
    skip_acl: bool,
}

impl Published {
    pub(crate) fn new(
        tree: Tree,
        sessions: Arc<SessionTable>,
        stats: Arc<ServerStats>,
        skip_acl: bool,
        watch_limits: WatchLimits,
    ) -> Self {
        Self {
            committed: RwLock::new(tree),
            watches: Mutex::new(Watches::new(watch_limits)),
            digests: Mutex::default(),
            long_reads: LongReads::default(),
            sessions,
            stats,
            skip_acl,
        }
    }

    /// The newest version that is on disk.
    pub(crate) fn tree(&self) -> Tree {
        self.committed().clone()
    }

    /// The zxid of that version.
    pub(crate) fn last_zxid(&self) -> i64 {
        self.committed().last_zxid()
    }

    /// Whether the session is on disk: what is not may still come to nothing.
    pub(crate) fn has_session(&self, id: i64) -> bool {
        self.committed().has_session(id)
    }

    /// Answers a read, now or as soon as the writes of its session before it are published. False if it takes long: then
    /// its connection is not to be read until it is answered.
    pub(crate) fn read(&self, session: &Session, request: Request) -> bool {
        let tree = self.committed();
        let mut lane = session.lane();
        if !lane.belongs_to(&request.peer) || session.has_ended() {
            return true;
        }
        if !lane.is_idle() {
            self.wait(&request);
            lane.park(Parked::Read(request));
            return true;
        }
        let answered = self.answer(&tree, session, &request);
        if !answered {
            self.wait(&request);
            self.answer_later(&tree, session, request);
        }
        answered
    }

    /// Hands a session to the connection `peer`, which came back for it, and answers with `frame`
    /// when all that was accepted before is published. False if the session has ended.
    pub(crate) fn reattach(&self, session: &Session, peer: &Arc<Peer>, frame: BytesMut) -> bool {
        let _version = self.committed();
        let mut lane = session.lane();
        if session.has_ended() {
            return false;
        }
        let before = lane.attach(peer.clone());
        if lane.is_idle() {
            greet(peer, &frame);
        } else {
            lane.park(Parked::ConnectReply {
                peer: peer.clone(),
                frame,
            });
        }
        drop(lane);
        if let Some(before) = before {
            before.outbox.close();
            self.watches().remove_peer(&before);
        }
        true
    }

    /// Forgets a connection. Its session lives on until its timeout.
    ///
    /// Never panics: it may be what is left to do after a panic, and a second one would end the whole process.
    pub(crate) fn disconnect(&self, session: &Session, peer: &Arc<Peer>) {
        session.detach(peer);
        let watches = self.watches.lock();
        watches
            .unwrap_or_else(PoisonError::into_inner)
            .remove_peer(peer);
    }

    /// Makes writes visible that are on disk: their version, then the events and the reply of each,
    /// and at last the reads that waited for them. Those see what the whole group made, and every
    /// event of it has been sent before.
    pub(crate) fn publish(&self, group: Group) {
        let mut committed = self
            .committed
            .write()
            .expect("no code panics while it holds the lock");
        debug_assert!(
            group.tree.last_zxid() >= committed.last_zxid(),
            "versions only go forward"
        );
        let before = std::mem::replace(&mut *committed, group.tree);
        let mut told = Told::default();
        let mut with_reads = Vec::new();
        for decided in group.decided {
            with_reads.extend(self.tell(decided, &mut told));
        }
        for session in with_reads {
            self.unpark(&committed, &session, &mut told.answered);
        }
        drop(committed);
        told.flush();
        // If nobody else has it, that frees all that has changed since, which may be much.
        drop(before);
    }

    /// Tells everybody who is to hear of one write, and returns its session if reads waited for it.
    /// Those who were told are added to `told`.
    fn tell(&self, decided: Decided, told: &mut Told) -> Option<Arc<Session>> {
        if let Some((txn, digest)) = &decided.txn {
            self.stats.commits.fetch_add(1, Relaxed);
            self.remember_digest(txn.zxid, *digest);
        }
        if let Answer::Expired { session } = &decided.answer {
            // It is told nothing more, not even that its own nodes are gone.
            if let Some(peer) = session.lane().peer() {
                peer.outbox.close();
            }
        }
        if !decided.changes.is_empty() {
            let mut watches = self.watches();
            for change in &decided.changes {
                watches.fire(change, self.skip_acl, &mut told.watching);
            }
        }
        match decided.answer {
            Answer::Reply {
                session,
                request,
                frame,
                zxid,
            } => {
                request.peer.stats.answered(&request, zxid);
                request
                    .peer
                    .outbox
                    .push(|out| out.extend_from_slice(&frame));
                self.wait_no_more(&request);
                self.stats.answered(request.received);
                if request.op == Some(Op::CloseSession) {
                    self.sessions.remove(session.id);
                    request.peer.outbox.finish();
                }
                told.answered.push(request.peer);
                written(session)
            }
            Answer::Connected {
                session,
                peer,
                frame,
            } => {
                greet(&peer, &frame);
                told.answered.push(peer);
                written(session)
            }
            Answer::Expired { session } => {
                self.sessions.remove(session.id);
                self.stats.sessions_expired.fetch_add(1, Relaxed);
                None
            }
            Answer::Nobody => None,
            Answer::CounterSet { found, done } => {
                // Whoever asked may have gone; then there is nobody to tell.
                let _ = done.send(found);
                None
            }
        }
    }

    fn unpark(&self, tree: &Tree, session: &Session, answered: &mut Vec<Arc<Peer>>) {
        let mut lane = session.lane();
        while let Some(parked) = lane.unpark() {
            let peer = match parked {
                Parked::Read(request) if !request.peer.outbox.is_open() => {
                    // Nobody reads the answer.
                    self.wait_no_more(&request);
                    continue;
                }
                Parked::Read(request) => {
                    if !self.answer(tree, session, &request) {
                        self.answer_later(tree, session, request);
                        continue;
                    }
                    self.wait_no_more(&request);
                    request.peer
                }
                Parked::ConnectReply { peer, frame } => {
                    greet(&peer, &frame);
                    peer
                }
            };
            answered.push(peer);
        }
    }

    /// Answers a read under the lock; false if that takes long.
    fn answer(&self, tree: &Tree, session: &Session, request: &Request) -> bool {
        let read = Read {
            tree,
            watches: Some(&self.watches),
            session_id: session.id,
            request,
            skip_acl: self.skip_acl,
        };
        let answered = read.answer();
        if answered {
            self.stats.answered(request.received);
        }
        answered
    }

    /// Reserves the place of an answer that takes long, under the lock.
    fn answer_later(&self, tree: &Tree, session: &Session, request: Request) {
        self.long_reads.push(LongRead {
            tree: tree.clone(),
            session_id: session.id,
            place: request.peer.outbox.reserve(),
            request,
        });
    }

    /// Computes answers that take long, until [`Self::stop_long_reads`]: the work of a thread of its own.
    pub(crate) fn serve_long_reads(&self) {
        while let Some(long) = self.long_reads.next() {
            let request = &long.request;
            // If the connection is gone, nobody reads the answer.
            if !request.peer.outbox.is_closed() {
                let read = Read {
                    tree: &long.tree,
                    watches: None,
                    session_id: long.session_id,
                    request,
                    skip_acl: self.skip_acl,
                };
                read.answer_in(long.place);
                self.stats.answered(request.received);
                request.peer.outbox.flush();
            }
            self.wait_no_more(request);
        }
    }

    /// Ends what [`Self::serve_long_reads`] does.
    pub(crate) fn stop_long_reads(&self) {
        self.long_reads.stop();
    }

    /// Counts a request that waits for a disk, or to be computed.
    pub(crate) fn wait(&self, request: &Request) {
        self.stats.outstanding.fetch_add(1, Relaxed);
        let bytes = request.body.len() as u64;
        self.stats.outstanding_bytes.fetch_add(bytes, Relaxed);
        request.peer.request_waits();
    }

    fn wait_no_more(&self, request: &Request) {
        self.stats.outstanding.fetch_sub(1, Relaxed);
        let bytes = request.body.len() as u64;
        self.stats.outstanding_bytes.fetch_sub(bytes, Relaxed);
        request.peer.request_waits_no_more();
    }

    /// Keeps the digests that `hash` shows: every 128th, the last 1024 of them.
    fn remember_digest(&self, zxid: i64, digest: u64) {
        if zxid % 128 == 0 {
            let mut digests = self.digests.lock().expect("never panics inside");
            digests.push_back((zxid, digest));
            if digests.len() > 1024 {
                digests.pop_front();
            }
        }
    }

    /// Those digests, with their zxids.
    pub(crate) fn digests(&self) -> Vec<(i64, u64)> {
        self.digests
            .lock()
            .expect("never panics inside")
            .iter()
            .copied()
            .collect()
    }

    /// How many watches there are.
    pub(crate) fn watch_count(&self) -> usize {
        self.watches().used().watches
    }

    /// The bytes of all watched paths, each counted once for every watch.
    pub(crate) fn watch_bytes(&self) -> usize {
        self.watches().used().bytes
    }

    /// How many connections watch how many paths, and how many watches that are.
    pub(crate) fn watch_summary(&self) -> (usize, usize, usize) {
        self.watches().summary()
    }

    /// Who watches what.
    pub(crate) fn watch_report(&self) -> WatchReport {
        self.watches().report()
    }

    fn committed(&self) -> RwLockReadGuard<'_, Tree> {
        self.committed
            .read()
            .expect("no code panics while it holds the lock")
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, Watches> {
        self.watches
            .lock()
            .expect("no code panics while it holds the watches")
    }
}

/// Whose outboxes have something new in them.
#[derive(Default)]
struct Told {
    /// Who waits for an answer.
    answered: Vec<Arc<Peer>>,
    /// Who watches what has changed. There may be thousands of them.
    watching: Vec<Arc<Peer>>,
}

impl Told {
    /// Writes to all of them, first to those who wait.
    fn flush(self) {
        for peer in self.answered.iter().chain(&self.watching) {
            peer.outbox.flush();
        }
    }
}

/// Counts a write of `session`, and returns it if something waited for that.
fn written(session: Arc<Session>) -> Option<Arc<Session>> {
    let mut lane = session.lane();
    lane.write_published();
    let has_due = lane.has_due();
    drop(lane);
    has_due.then_some(session)
}

/// Answers a client that has asked for a session, and lets its requests in.
fn greet(peer: &Peer, frame: &[u8]) {
    peer.outbox.push(|out| out.extend_from_slice(frame));
    peer.request_waits_no_more();
}
