//! The state of one session: its identity, its requests in flight, and the bytes to send next.

mod answers;
mod asking;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bellwether_wire::connect::{ConnectReply, ConnectRequest};
use bellwether_wire::frame;
use bellwether_wire::op::Op;
use bellwether_wire::request;
use bytes::BytesMut;
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::core::features::{Feature, Features};
use crate::core::life::{Life, Proof};
use crate::core::requests::{Answer, Pending, Requests, Slot};
use crate::core::watches::{Notice, Removal, Watches, in_parts};
use crate::error::{Error, SessionEnd};
use crate::options::session::{Credential, Limits};

use self::asking::put_watch_flag;

/// The xid of pings and of auth requests, as every client of the protocol uses them.
const PING_XID: i32 = -2;
const AUTH_XID: i32 = -4;

/// How many pings may be without an answer. A server that owes more gets no further ones.
const PINGS_MAX: usize = 64;

/// Bytes of paths in one setWatches, as in Apache's client: far below the limit of any server.
const WATCH_BYTES_MAX: usize = 128 * 1024;

/// The type *any* of removeWatches and checkWatches.
pub(crate) const ANY_WATCH: i32 = 3;

/// How many pings an idle session sends in its timeout by default.
const PINGS_PER_TIMEOUT_MIN: u32 = 6;

/// A server that does not answer is given up after this part of the session timeout, and after this part by an attentive session.
const SILENCES: u32 = 2;
const SILENCES_ATTENTIVE: u32 = 4;
/// But not so soon in short sessions: a busy machine may not run for that long.
const SILENCE_MIN: Duration = Duration::from_millis(500);

/// The identity of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) password: [u8; 16],
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.id)
    }
}

/// An answer or event to deliver once the lock of the session is free.
#[derive(Debug)]
pub(crate) enum Delivery {
    Reply(oneshot::Sender<Answer>, Answer),
    Notice(Notice),
}

/// Why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the server sent an invalid reply")]
    Protocol,
    #[error("the server stopped answering")]
    Silent,
    #[error("the session is over")]
    Ended,
    #[error("the server does not know an operation")]
    UnknownOperation,
}

/// Whether there is a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    limits: Limits,
    requested_timeout: Duration,
    identity: Option<Identity>,
    proof: Proof,
    /// The timeout negotiated when the session was opened; unknown for a session that was taken over.
    opened_with: Option<Duration>,
    /// The highest zxid seen, in replies and events.
    last_zxid: i64,
    /// The highest zxid in a reply: all events up to it have arrived. An event proves less: others of its transaction may follow it.
    answered_zxid: i64,
    /// Requests on the connection that arm watches again, and the zxid up to which these watches have seen changes. Until all are
    /// answered, another reconnect must start from there: the answer to the first has a newer zxid, and says nothing about the watches
    /// in the others.
    rearming: usize,
    rearm_zxid: Option<i64>,
    link: Link,
    /// The number of connections so far, and whether the latest one has received anything.
    connections: u64,
    has_answered: bool,
    end: Option<SessionEnd>,
    closing: bool,
    credentials: Vec<Credential>,
    /// Auth requests on the connection; servers answer them out of order.
    auths: VecDeque<Option<oneshot::Sender<Answer>>>,
    requests: Requests,
    /// Until when requests are refused because there were too many.
    refuses_until: Moment,
    watches: Watches,
    features: Features,
    /// Bytes that the socket has not accepted yet, and the number that it has accepted.
    out: BytesMut,
    written: u64,
    last_sent: Moment,
    last_heard: Moment,
    /// When the pings without an answer were sent, oldest first: servers answer them in order.
    pings: VecDeque<Moment>,
    /// A session is idle for no longer than its timeout divided by this.
    pings_per_timeout: u32,
    is_attentive: bool,
    /// An attentive session has given a server up, and no ping was answered soon since: if the servers are slow, or the network, another
    /// connection so soon would not help.
    is_slow: bool,
    deliveries: Vec<Delivery>,
}

impl Session {
    pub(crate) fn new(
        now: Moment,
        requested_timeout: Duration,
        identity: Option<Identity>,
        credentials: Vec<Credential>,
        limits: Limits,
    ) -> Self {
        Self {
            limits,
            requested_timeout,
            identity,
            // A session that is taken over has given this process no proof yet.
            proof: match identity {
                None => Proof::new(now, requested_timeout),
                Some(_) => Proof::new(Moment::from_nanos(0), requested_timeout),
            },
            opened_with: None,
            last_zxid: 0,
            answered_zxid: 0,
            rearming: 0,
            rearm_zxid: None,
            link: Link::Down,
            connections: 0,
            has_answered: false,
            end: None,
            closing: false,
            credentials,
            auths: VecDeque::new(),
            requests: Requests::default(),
            refuses_until: now,
            watches: Watches::default(),
            features: Features::default(),
            out: BytesMut::new(),
            written: 0,
            last_sent: now,
            last_heard: now,
            pings: VecDeque::new(),
            pings_per_timeout: PINGS_PER_TIMEOUT_MIN,
            is_attentive: false,
            is_slow: false,
            deliveries: Vec::new(),
        }
    }

    // --- identity ---------------------------------------------------------------------------

    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    pub(crate) fn life(&self) -> Life {
        self.proof.life()
    }

    pub(crate) fn has_credentials(&self) -> bool {
        !self.credentials.is_empty()
    }

    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        self.limits.request_timeout
    }

    pub(crate) fn events_max(&self) -> usize {
        self.limits.events_max
    }

    pub(crate) fn end(&self) -> Option<SessionEnd> {
        self.end
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections
    }

    /// How many requests callers have made.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.made()
    }

    /// Whether the server has sent anything on the latest connection after the handshake.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    pub(crate) fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// Whether the servers have a feature; `None` if that is unknown.
    pub(crate) fn feature(&self, feature: Feature) -> Option<bool> {
        self.features.get(feature)
    }

    /// Asks for pings so that the servers hear from the session at least `pings` times in a session timeout.
    pub(crate) fn set_pings_per_timeout(&mut self, pings: u32) {
        self.pings_per_timeout = pings.max(PINGS_PER_TIMEOUT_MIN);
    }

    /// Whether to give up a silent server soon.
    pub(crate) fn set_attentive(&mut self, is_attentive: bool) {
        self.is_attentive = is_attentive;
    }

    /// How long a server may be silent while it owes an answer.
    fn silence_max(&self) -> Duration {
        let timeout = self.life().timeout;
        let short = (timeout / SILENCES_ATTENTIVE).max(SILENCE_MIN);
        match self.is_attentive && !self.is_slow {
            true => short.min(timeout / SILENCES),
            false => timeout / SILENCES,
        }
    }

    // --- the connection -----------------------------------------------------------------------

    /// The first bytes of a new connection.
    pub(crate) fn connect_request(&self) -> ConnectRequest {
        let identity = self.identity.unwrap_or(Identity {
            id: 0,
            password: [0; 16],
        });
        ConnectRequest {
            last_zxid_seen: self.last_zxid,
            timeout_ms: i32::try_from(self.requested_timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: identity.id,
            password: identity.password.to_vec(),
            has_read_only: true,
        }
    }

    /// A server answered the handshake that was sent at `sent`: the session is open, or it has ended.
    pub(crate) fn connected(
        &mut self,
        now: Moment,
        sent: Moment,
        reply: ConnectReply,
    ) -> Result<(), Broken> {
        if !reply.is_session() {
            self.finish(SessionEnd::Expired);
            return Err(Broken::Ended);
        }
        let timeout = Duration::from_millis(u64::from(reply.timeout_ms.unsigned_abs()));
        let is_new = self.identity.is_none();
        self.identity = Some(Identity {
            id: reply.session_id,
            password: reply.password,
        });
        match is_new {
            true => {
                self.proof = Proof::new(sent, timeout);
                self.opened_with = Some(timeout);
            }
            false => {
                let timeout = self.opened_with.map_or(timeout, |first| first.min(timeout));
                self.proof.reattached(now, sent, timeout);
            }
        }
        self.link = Link::Up;
        self.connections += 1;
        self.has_answered = false;
        self.out.clear();
        self.written = 0;
        self.pings.clear();
        (self.last_sent, self.last_heard) = (now, now);
        for index in 0..self.credentials.len() {
            let credential = self.credentials[index].clone();
            self.put_auth(&credential, None);
        }
        self.arm_again(now);
        while let Some((mut pending, mut frame)) = self.requests.next_waiting() {
            put_watch_flag(&mut self.watches, pending.arming.as_ref(), &mut frame);
            self.out.extend_from_slice(&frame);
            pending.sent = now;
            self.enqueue(now, pending);
        }
        if self.closing {
            self.put_close(now);
        }
        Ok(())
    }

    /// The connection is lost. Requests that the server cannot have read completely were not sent; the outcome of the others is unknown.
    pub(crate) fn disconnected(&mut self) {
        if self.link == Link::Down {
            return;
        }
        self.link = Link::Down;
        self.out = BytesMut::new();
        self.watches.disconnected();
        for slot in std::mem::take(&mut self.auths).into_iter().flatten() {
            self.deliveries
                .push(Delivery::Reply(slot, Err(Error::Unknown)));
        }
        let ended = self.end.map(Error::SessionEnded);
        for pending in self.requests.disconnect() {
            let is_sent = pending.end <= self.written;
            let error = if is_sent {
                Error::Unknown
            } else {
                Error::NotSent
            };
            self.fail(pending, ended.unwrap_or(error));
        }
    }

    /// Ends the session for this process.
    pub(crate) fn finish(&mut self, end: SessionEnd) {
        if self.end.is_some() {
            return;
        }
        // If the answer to a close is lost, a reconnect finds that the session is gone, as requested.
        let end = match end {
            SessionEnd::Expired if self.closing => SessionEnd::Closed,
            end => end,
        };
        self.end = Some(end);
        self.disconnected();
        while let Some((pending, _)) = self.requests.next_waiting() {
            self.fail(pending, Error::SessionEnded(end));
        }
        self.watches.clear();
    }

    /// Sends a ping if one is due. Returns when to call again.
    pub(crate) fn tick(&mut self, now: Moment) -> Result<Duration, Broken> {
        let quiet_max = self.life().timeout / self.pings_per_timeout;
        let silence_max = self.silence_max();
        // Counted from the oldest unanswered request: newer ones must not hide it.
        let oldest = self.requests.oldest().map(|oldest| oldest.sent);
        let asked = oldest.into_iter().chain(self.pings.front().copied()).min();
        let silent = asked.map_or(Duration::ZERO, |asked| now - asked.max(self.last_heard));
        if silent > silence_max {
            self.is_slow = self.is_attentive;
            return Err(Broken::Silent);
        }
        if let Some(limit) = self.limits.request_timeout
            && let Some(oldest) = self.requests.oldest()
            && now - oldest.sent > limit
        {
            return Err(Broken::Silent);
        }
        if now - self.last_sent >= quiet_max {
            self.ping(now);
            self.last_sent = now;
        }
        let until_ping = quiet_max.saturating_sub(now - self.last_sent);
        let mut next = until_ping.min(silence_max / 4).min(silence_max - silent);
        if let Some(limit) = self.limits.request_timeout {
            next = next.min(limit / 4);
        }
        Ok(next.max(Duration::from_millis(1)))
    }

    /// A part of a large reply has arrived.
    pub(crate) fn heard_part(&mut self, now: Moment) {
        self.last_heard = now;
    }

    /// A second ping before the answer to the first still shows the servers that this client is alive.
    fn ping(&mut self, now: Moment) {
        if self.pings.len() >= PINGS_MAX {
            return;
        }
        request::put(&mut self.out, PING_XID, Op::Ping, |_| {});
        self.pings.push_back(now);
    }

    /// While there is no connection: fails requests that have waited too long. Returns whether the session must have expired.
    pub(crate) fn tick_down(&mut self, now: Moment) -> bool {
        if let Some(limit) = self.limits.request_timeout {
            while self
                .requests
                .oldest_waiting()
                .is_some_and(|oldest| now - oldest.sent > limit)
            {
                if let Some((pending, _)) = self.requests.next_waiting() {
                    self.fail(pending, Error::NotSent);
                }
            }
        }
        self.identity.is_some() && self.proof.is_gone(now)
    }

    // --- bytes and deliveries -----------------------------------------------------------------

    /// The bytes to write to the socket.
    pub(crate) fn out(&self) -> &[u8] {
        &self.out
    }

    /// The socket accepted `bytes` bytes.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        if bytes == self.out.len() {
            // A buffer that held a large request is released.
            match self.out.capacity() > 64 * 1024 {
                true => self.out = BytesMut::new(),
                false => self.out.clear(),
            }
        } else {
            bytes::Buf::advance(&mut self.out, bytes);
        }
    }

    pub(crate) fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }

    // --- internals -------------------------------------------------------------------------------

    /// Records a request whose frame is the last one in `out`.
    fn enqueue(&mut self, now: Moment, mut pending: Pending) {
        if let Some(path) = &pending.removes {
            self.watches.removing(path);
        }
        pending.end = self.written + self.out.len() as u64;
        self.last_sent = now;
        self.requests.push(pending);
    }

    fn enqueue_own(&mut self, now: Moment, op: Op, slot: Slot, body: impl FnOnce(&mut BytesMut)) {
        let xid = self.requests.next_xid();
        request::put(&mut self.out, xid, op, body);
        let pending = Pending {
            xid,
            op,
            sent: now,
            end: 0,
            slot,
            arming: None,
            removes: None,
        };
        self.enqueue(now, pending);
    }

    fn put_auth(&mut self, credential: &Credential, slot: Option<oneshot::Sender<Answer>>) {
        request::put(&mut self.out, AUTH_XID, Op::Auth, |out| {
            request::put_auth(out, credential.scheme(), Some(credential.secret()));
        });
        self.auths.push_back(slot);
    }

    fn put_close(&mut self, now: Moment) {
        self.enqueue_own(now, Op::CloseSession, Slot::Close, |_| {});
    }

    fn arm_again(&mut self, now: Moment) {
        let (lists, notices) = self.watches.rearm();
        let relative_zxid = self.rearm_zxid.unwrap_or(self.answered_zxid);
        self.rearming = 0;
        for lists in in_parts(lists, WATCH_BYTES_MAX) {
            // Servers before 3.6 have neither setWatches2 nor persistent watches.
            let (op, count) = match lists[3].is_empty() && lists[4].is_empty() {
                true => (Op::SetWatches, 3),
                false => (Op::SetWatches2, 5),
            };
            self.rearming += 1;
            self.enqueue_own(now, op, Slot::Rearmed, |out| {
                let lists = lists[..count].iter().map(Vec::as_slice);
                request::put_set_watches(out, relative_zxid, lists);
            });
        }
        self.rearm_zxid = (self.rearming > 0).then_some(relative_zxid);
        let notices = notices.into_iter().map(Delivery::Notice);
        self.deliveries.extend(notices);
    }

    fn remove(&mut self, now: Moment, removal: Option<Removal>) {
        // Without a connection there is nothing to remove: the server dropped the watch with the last connection.
        if let Some(Removal { kind, path }) = removal
            && self.is_up()
            && !self.closing
            && !self.features.lacks(Op::RemoveWatches)
        {
            self.enqueue_own(now, Op::RemoveWatches, Slot::Nobody, |out| {
                request::put_path_number(out, &path, kind.removal_type());
            });
        }
    }

    fn fail(&mut self, pending: Pending, error: Error) {
        if let Some(arming) = &pending.arming {
            // No connection, so there is nothing to remove.
            let _ = self.watches.not_armed(arming);
        }
        if let Slot::Caller(sender) = pending.slot {
            self.deliveries.push(Delivery::Reply(sender, Err(error)));
        }
    }
}

/// Appends the handshake of a new connection.
pub(crate) fn put_handshake(request: &ConnectRequest, read_only: bool) -> BytesMut {
    let mut out = BytesMut::new();
    frame::put(&mut out, |out| request.encode(read_only, out));
    out
}

#[cfg(test)]
mod tests;
