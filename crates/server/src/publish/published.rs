//! The version that readers see, and the publication of the next one.
//!
//! One lock orders everything that a client can observe. A read holds it shared while it computes its reply from the version, arms its
//! watch and appends the reply to the outbox. Publishing holds it exclusively while a version becomes visible and its events and replies
//! are appended. So an event precedes every reply that shows its change, and follows the reply that armed its watch. Lock order: the
//! version, then a session's request order, then watches or an outbox. Sockets are written after the lock is released. A read that takes long only
//! reserves the place of its reply under the lock.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bellwether_wire::op::Op;
use bellwether_wire::reply;
use bytes::BytesMut;

use super::events::Events;
use super::long_reads::{LongRead, LongReads};
use super::pulse::Pulse;
use super::reads::Read;
use super::rearming::Rearming;
use super::recipients::Recipients;
use super::watch_limits::WatchLimits;
use super::watches::{PART_WATCHES, WatchReport, Watches};
use crate::audit::Audit;
use crate::client::{Peer, Request};
use crate::session::{Parked, Session, SessionTable};
use crate::slow_requests::{SlowRequest, SlowRequests, StageTimes};
use crate::stats::ServerStats;
use crate::tree::Tree;
use crate::writer::{Answer, Decided, Group, Publish};

/// The published state: version, watches and digests.
#[derive(Debug)]
pub(crate) struct Published {
    committed: RwLock<Tree>,
    watches: Mutex<Watches>,
    /// Digests of some versions, for comparison with another server.
    digests: Mutex<VecDeque<(i64, u64)>>,
    long_reads: LongReads,
    pub(crate) pulse: Pulse,
    pub(crate) slow: SlowRequests,
    sessions: Arc<SessionTable>,
    stats: Arc<ServerStats>,
    skip_acl: bool,
    audit: Option<Arc<Audit>>,
}

impl Published {
    pub(crate) fn new(
        tree: Tree,
        sessions: Arc<SessionTable>,
        stats: Arc<ServerStats>,
        skip_acl: bool,
        watch_limits: WatchLimits,
        audit: Option<Arc<Audit>>,
        slow_after: Duration,
    ) -> Self {
        Self {
            committed: RwLock::new(tree),
            watches: Mutex::new(Watches::new(watch_limits)),
            digests: Mutex::default(),
            long_reads: LongReads::default(),
            pulse: Pulse::default(),
            slow: SlowRequests::new(slow_after, stats.meters.clone()),
            sessions,
            stats,
            skip_acl,
            audit,
        }
    }

    /// The newest version that is on disk.
    pub(crate) fn tree(&self) -> Tree {
        self.committed().clone()
    }

    /// Zxid of the newest version that is on disk.
    pub(crate) fn last_zxid(&self) -> i64 {
        self.committed().last_zxid()
    }

    /// Whether the session is on disk. A session that is not may still be lost.
    pub(crate) fn has_session(&self, id: i64) -> bool {
        self.committed().has_session(id)
    }

    /// Answers a read, now or after the earlier writes of its session are published. Returns false if it takes long: then its connection is
    /// not read until the reply is sent.
    pub(crate) fn read(&self, session: &Session, request: Request) -> bool {
        let tree = self.committed();
        let mut order = session.request_order();
        if !order.belongs_to(&request.peer) || session.has_ended() {
            return true;
        }
        if !order.is_idle() {
            self.wait(&request);
            order.park(Parked::Read(request));
            return true;
        }
        let Some(took) = self.answer(&tree, session, &request) else {
            self.wait(&request);
            self.answer_later(&tree, session, request);
            return false;
        };
        drop(order);
        drop(tree);
        self.note_read(session.id, &request, took, None);
        true
    }

    /// Arms a part of the watches of a setWatches, and replies after the last part. Returns whether that is over. Call it again until then;
    /// other requests get the lock between two calls.
    ///
    /// No request of the connection may be outstanding: this does not wait for writes of the session.
    pub(crate) fn rearm(
        &self,
        session: &Session,
        request: &Request,
        rearming: &mut Rearming<'_>,
    ) -> bool {
        let tree = self.committed();
        let order = session.request_order();
        if !order.belongs_to(&request.peer) || session.has_ended() {
            return true;
        }
        debug_assert!(order.is_idle(), "no write is outstanding");
        let is_over = self
            .reader(&tree, session, request)
            .rearm(rearming, PART_WATCHES);
        drop(order);
        drop(tree);
        if is_over {
            let took = request.received.elapsed();
            self.stats.answered(took);
            self.note_read(session.id, request, took, None);
        }
        is_over
    }

    /// Moves a session to the connection `peer`, which resumes it, and replies with `frame` once all earlier writes are published. Returns
    /// false if the session has ended.
    pub(crate) fn reattach(&self, session: &Session, peer: &Arc<Peer>, frame: BytesMut) -> bool {
        let version = self.committed();
        let mut order = session.request_order();
        if session.has_ended() {
            return false;
        }
        let before = order.attach(peer.clone());
        if order.is_idle() {
            greet(peer, &frame);
        } else {
            order.park(Parked::ConnectReply {
                peer: peer.clone(),
                frame,
            });
        }
        drop(order);
        if let Some(before) = &before {
            before.outbox.close();
        }
        drop(version);
        if let Some(before) = before {
            self.remove_watches(&before);
        }
        true
    }

    /// Detaches a connection. Its session lives on until its timeout.
    ///
    /// Never panics: it may run during unwinding, where a second panic aborts the process.
    pub(crate) fn disconnect(&self, session: &Session, peer: &Arc<Peer>) {
        session.detach(peer);
        self.remove_watches(peer);
    }

    /// Removes the watches of a connection that is closed, in parts: other requests get the lock between two parts. Never panics.
    fn remove_watches(&self, peer: &Peer) {
        let mut has_more = true;
        while has_more {
            let watches = self.watches.lock();
            let mut watches = watches.unwrap_or_else(PoisonError::into_inner);
            has_more = watches.remove_some(peer);
        }
    }

    /// Makes a version visible, then sends the events and the reply of each of its writes, and finally answers the reads that waited for
    /// these writes. Such reads see the version of the whole group, after all of its events.
    pub(super) fn make_visible(&self, group: Group) -> (Tree, Recipients) {
        let mut committed = self
            .committed
            .write()
            .expect("no code panics while it holds the lock");
        debug_assert!(
            group.tree.last_zxid() >= committed.last_zxid(),
            "versions only go forward"
        );
        let before = std::mem::replace(&mut *committed, group.tree);
        let mut recipients = Recipients::default();
        let mut events = Events::new(self.skip_acl);
        let mut with_reads = Vec::new();
        for decided in group.decided {
            with_reads.extend(self.tell(decided, &group.times, &mut events, &mut recipients));
        }
        recipients.watching.extend(events.deliver());
        for session in with_reads {
            self.unpark(&committed, &session, &group.times, &mut recipients);
        }
        (before, recipients)
    }

    /// Adds the events of one write, and sends its reply behind all events so far. Returns the session if reads waited for this write.
    fn tell(
        &self,
        decided: Decided,
        times: &StageTimes,
        events: &mut Events,
        recipients: &mut Recipients,
    ) -> Option<Arc<Session>> {
        if let Some((txn, digest)) = &decided.txn {
            self.stats.commits.fetch_add(1, Relaxed);
            self.remember_digest(txn.zxid, *digest);
        }
        if let Answer::Expired { session } = &decided.answer {
            // It receives nothing more, not even the deletes of its own nodes.
            if let Some(peer) = session.request_order().peer() {
                peer.outbox.close();
            }
        }
        if !decided.changes.is_empty() {
            let mut watches = self.watches();
            for change in &decided.changes {
                watches.fire(change, events);
            }
        }
        match decided.answer {
            Answer::Reply {
                session,
                request,
                frame,
                zxid,
            } => {
                let is_ok = reply::is_ok(&frame);
                let took = request.peer.count_answer(&request, zxid, is_ok);
                events.deliver_to(&request.peer);
                request
                    .peer
                    .outbox
                    .push(|out| out.extend_from_slice(&frame));
                self.wait_no_more(&request);
                self.stats.answered(took);
                if request.op == Some(Op::CloseSession) {
                    self.sessions.remove(session.id);
                    request.peer.outbox.finish();
                }
                if self.slow.is_slow(took) {
                    let slow = SlowRequest::write(&request, session.id, took, times);
                    recipients.slow.push(slow);
                }
                recipients.answered.push(request.peer);
                written(session)
            }
            Answer::Connected {
                session,
                peer,
                frame,
            } => {
                greet(&peer, &frame);
                recipients.answered.push(peer);
                written(session)
            }
            Answer::Expired { session } => {
                self.sessions.remove(session.id);
                self.stats.sessions_expired.fetch_add(1, Relaxed);
                None
            }
            Answer::Nobody => None,
            Answer::Pulse => {
                self.pulse.beat();
                None
            }
            Answer::CounterSet { found, done } => {
                // The caller may have stopped waiting.
                let _ = done.send(found);
                None
            }
        }
    }

    fn unpark(
        &self,
        tree: &Tree,
        session: &Session,
        times: &StageTimes,
        recipients: &mut Recipients,
    ) {
        let mut order = session.request_order();
        while let Some(parked) = order.unpark() {
            let peer = match parked {
                Parked::Read(request) if !request.peer.outbox.is_open() => {
                    // The client is gone and does not receive the reply.
                    self.wait_no_more(&request);
                    continue;
                }
                Parked::Read(request) => {
                    let Some(took) = self.answer(tree, session, &request) else {
                        self.answer_later(tree, session, request);
                        continue;
                    };
                    self.wait_no_more(&request);
                    if self.slow.is_slow(took) {
                        let slow = SlowRequest::read(&request, session.id, took, times.synced);
                        recipients.slow.push(slow);
                    }
                    request.peer
                }
                Parked::ConnectReply { peer, frame } => {
                    greet(&peer, &frame);
                    peer
                }
            };
            recipients.answered.push(peer);
        }
    }

    /// Answers a read under the lock, and returns how long it took; `None` if it takes long.
    fn answer(&self, tree: &Tree, session: &Session, request: &Request) -> Option<Duration> {
        let answered = self.reader(tree, session, request).answer();
        answered.then(|| {
            let took = request.received.elapsed();
            self.stats.answered(took);
            took
        })
    }

    /// Reports a read that was answered after `took`, if that is long. If it waited, that was until `begun`.
    fn note_read(
        &self,
        session_id: i64,
        request: &Request,
        took: Duration,
        begun: Option<Instant>,
    ) {
        if self.slow.is_slow(took) {
            let begun = begun.unwrap_or(request.received);
            let slow = SlowRequest::read(request, session_id, took, begun);
            self.slow.report(slow);
        }
    }

    fn reader<'a>(&'a self, tree: &'a Tree, session: &Session, request: &'a Request) -> Read<'a> {
        Read {
            tree,
            watches: Some(&self.watches),
            session_id: session.id,
            request,
            skip_acl: self.skip_acl,
        }
    }

    /// Reserves, under the lock, the place of a reply that takes long.
    fn answer_later(&self, tree: &Tree, session: &Session, request: Request) {
        self.long_reads.push(LongRead {
            tree: tree.clone(),
            session_id: session.id,
            place: request.peer.outbox.reserve(),
            request,
        });
    }

    /// Computes replies that take long, until [`Self::stop_long_reads`]. Runs on threads of its own.
    pub(crate) fn serve_long_reads(&self) {
        while let Some(long) = self.long_reads.next() {
            self.answer_long(long);
        }
    }

    /// Computes one reply that takes long. Returns false if none waits.
    #[cfg(feature = "simulation")]
    pub(crate) fn answer_one_long_read(&self) -> bool {
        let long = self.long_reads.try_next();
        long.map(|long| self.answer_long(long)).is_some()
    }

    fn answer_long(&self, long: LongRead) {
        let request = &long.request;
        let begun = Instant::now();
        // If the connection is closed, no one receives the reply.
        if !request.peer.outbox.is_closed() {
            let read = Read {
                tree: &long.tree,
                watches: None,
                session_id: long.session_id,
                request,
                skip_acl: self.skip_acl,
            };
            read.answer_in(long.place);
            let took = request.received.elapsed();
            self.stats.answered(took);
            request.peer.outbox.flush();
            self.note_read(long.session_id, request, took, Some(begun));
        }
        self.wait_no_more(request);
    }

    /// Ends the threads in [`Self::serve_long_reads`].
    pub(crate) fn stop_long_reads(&self) {
        self.long_reads.stop();
    }

    /// Counts a request that waits for the disk or to be computed.
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

    /// Stores the digests that `hash` shows: every 128th, the last 1024 of them.
    fn remember_digest(&self, zxid: i64, digest: u64) {
        if zxid % 128 == 0 {
            let mut digests = self.digests.lock().expect("never panics inside");
            digests.push_back((zxid, digest));
            if digests.len() > 1024 {
                digests.pop_front();
            }
        }
    }

    /// The stored digests with their zxids.
    pub(crate) fn digests(&self) -> Vec<(i64, u64)> {
        self.digests
            .lock()
            .expect("never panics inside")
            .iter()
            .copied()
            .collect()
    }

    /// Replaces the limits on watches. Armed watches stay.
    pub(crate) fn set_watch_limits(&self, limits: WatchLimits) {
        self.watches().set_limits(limits);
    }

    /// Number of watches.
    pub(crate) fn watch_count(&self) -> usize {
        self.watches().used().watches
    }

    /// Total bytes of watched paths, counted once per watch.
    pub(crate) fn watch_bytes(&self) -> usize {
        self.watches().used().bytes
    }

    /// Number of watching connections, watched paths, and watches.
    pub(crate) fn watch_summary(&self) -> (usize, usize, usize) {
        self.watches().summary()
    }

    /// Watched paths by connection.
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

impl Publish for Published {
    fn publish(&self, group: Group) -> Tree {
        if let Some(audit) = &self.audit {
            let mut lines = audit.lines();
            for decided in &group.decided {
                decided.tell_audit(&mut lines);
            }
        }
        let (before, recipients) = self.make_visible(group);
        recipients.flush();
        for slow in recipients.slow {
            self.slow.report(slow);
        }
        before
    }

    fn took(&self, time: Duration) {
        self.stats.meters.commit_time.add_time(time);
    }
}

/// Counts a published write of `session`, and returns the session if something waited for it.
fn written(session: Arc<Session>) -> Option<Arc<Session>> {
    let mut order = session.request_order();
    order.write_published();
    let has_due = order.has_due();
    drop(order);
    has_due.then_some(session)
}

/// Replies to a connect request, and lets the connection read further requests.
fn greet(peer: &Peer, frame: &[u8]) {
    peer.outbox.push(|out| out.extend_from_slice(frame));
    peer.request_waits_no_more();
}
