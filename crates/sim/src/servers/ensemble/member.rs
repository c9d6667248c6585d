//! One member: its connections, its version of the tree, and its position in the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellwether_wire::code::ErrorCode;
use bellwether_wire::connect::{ConnectReply, ConnectRequest};
use bellwether_wire::event::{self, EVENT_XID, EVENT_ZXID};
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::op::Op;
use bellwether_wire::request::RequestHeader;
use bellwether_wire::{frame, reply};
use bytes::{Bytes, BytesMut};
use rand::Rng as _;

use super::tree::{At, Tree};
use super::watches::Watches;
use super::{Ensemble, EnsembleEvent, Message};
use crate::world::{ConnId, Ms, Parts};

/// The largest request.
const FRAME_BYTES_MAX: usize = 0xF_FFFF;

#[derive(Debug)]
pub(super) struct Member {
    /// The number of its starts: messages to an earlier life are lost.
    pub(super) life: u64,
    pub(super) is_serving: bool,
    /// When it is up again.
    pub(super) back_at: Ms,
    pub(super) tree: Tree,
    /// The first zxid of its epoch, if it was elected leader: it shows this one until there is a write.
    pub(super) leads_from: i64,
    /// Length of the log that it has applied.
    pub(super) applied: u64,
    pub(super) applies_last: Ms,
    pub(super) lag: Ms,
    pub(super) watches: Watches,
    pub(super) link: Link,
    /// Sessions that were active since the last report.
    active: BTreeSet<i64>,
    is_report_planned: bool,
    /// Offset of the leader's question in each half tick.
    phase: Ms,
    pub(super) syncs: Vec<(u64, ConnId, i32, String)>,
    conns: BTreeMap<ConnId, Conn>,
    /// Its own maximum session timeout, if it has one.
    pub(super) timeout_max: Option<Ms>,
}

/// Connection to the leader and back.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) up: Way,
    pub(super) down: Way,
}

/// One direction of a link. Messages arrive in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Nothing arrives before this time.
    held_until: Ms,
    last_arrival: Ms,
}

impl Way {
    pub(super) fn hold(&mut self, until: Ms) {
        self.held_until = self.held_until.max(until);
    }

    /// Arrival time of a message sent at `now`.
    pub(super) fn arrival(&mut self, now: Ms, delay: Ms) -> Ms {
        let at = now.max(self.held_until) + delay;
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }

    pub(super) fn calm(&mut self, now: Ms) {
        self.held_until = self.held_until.min(now);
        self.last_arrival = self.last_arrival.min(now);
    }
}

impl Link {
    /// When both directions are open.
    pub(super) fn open_at(&self) -> Ms {
        self.up.held_until.max(self.down.held_until)
    }
}

#[derive(Debug, Default)]
struct Conn {
    input: BytesMut,
    state: State,
    has_read_only: bool,
    lane: VecDeque<Lane>,
    out: BytesMut,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Fresh,
    /// The leader is asked.
    Asking,
    Open(i64),
}

/// Requests of a connection in their order.
#[derive(Debug)]
enum Lane {
    /// The leader is working on it.
    Waits,
    Read {
        xid: i32,
        op: i32,
        body: Bytes,
    },
}

impl Member {
    pub(super) fn new(tree: Tree, phase: Ms) -> Self {
        Self {
            life: 0,
            is_serving: true,
            back_at: 0,
            tree,
            leads_from: 0,
            applied: 0,
            applies_last: 0,
            lag: 0,
            watches: Watches::default(),
            link: Link::default(),
            active: BTreeSet::new(),
            is_report_planned: false,
            phase,
            syncs: Vec::new(),
            conns: BTreeMap::new(),
            timeout_max: None,
        }
    }

    pub(super) fn is_up(&self, now: Ms) -> bool {
        self.back_at <= now && self.link.open_at() <= now
    }

    /// The zxid that clients see.
    pub(super) fn zxid(&self) -> i64 {
        self.tree.zxid.max(self.leads_from)
    }

    /// Starts again with a tree. The connections of its previous life are gone.
    pub(super) fn restart(&mut self, tree: &Tree, applied: u64) {
        self.life += 1;
        self.is_serving = true;
        self.tree = tree.clone();
        self.leads_from = 0;
        self.applied = applied;
        self.lag = 0;
        self.is_report_planned = false;
        self.active.clear();
    }

    /// Forgets a connection.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        self.watches.forget(conn);
    }

    /// Appends a frame to a connection, if it still exists.
    fn push(&mut self, conn: ConnId, write: impl FnOnce(&mut BytesMut)) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            write(&mut conn.out);
        }
    }
}

impl Ensemble {
    /// Whether a member accepts a connection.
    pub(super) fn accept(&mut self, member: usize, conn: ConnId) -> bool {
        let Some(member) = self.members.get_mut(member) else {
            return false;
        };
        if member.is_serving {
            member.conns.insert(conn, Conn::default());
        }
        member.is_serving
    }

    /// A member receives bytes from a client.
    pub(super) fn receive(&mut self, it: &mut Parts, member: usize, id: ConnId, bytes: &[u8]) {
        let Some(conn) = self.members[member].conns.get_mut(&id) else {
            return;
        };
        conn.input.extend_from_slice(bytes);
        loop {
            let Some(conn) = self.members[member].conns.get_mut(&id) else {
                return;
            };
            if conn.state == State::Asking {
                return;
            }
            match frame::take(&mut conn.input, FRAME_BYTES_MAX) {
                Ok(Some(frame)) if conn.state == State::Fresh => {
                    self.handshake(it, member, id, &frame);
                }
                Ok(Some(frame)) => self.request(it, member, id, frame),
                Ok(None) => break,
                Err(_) => return self.close(it, member, id),
            }
        }
        self.flush(it, member);
    }

    fn handshake(&mut self, it: &mut Parts, member: usize, id: ConnId, frame: &[u8]) {
        let Ok(request) = ConnectRequest::decode(frame) else {
            return self.close(it, member, id);
        };
        // A client's view never goes back: it must try another member.
        if request.last_zxid_seen > self.members[member].zxid() {
            return self.close(it, member, id);
        }
        if let Some(conn) = self.members[member].conns.get_mut(&id) {
            conn.state = State::Asking;
            conn.has_read_only = request.has_read_only;
        }
        let timeout_ms = self.grant(member, request.timeout_ms);
        let message = match request.session_id {
            0 => Message::Open {
                conn: id,
                timeout_ms,
            },
            session => Message::Revalidate {
                conn: id,
                session,
                timeout_ms,
            },
        };
        self.tell_leader(it, member, message);
    }

    /// The leader has answered whether a session that reconnects here is alive.
    pub(super) fn revalidated(
        &mut self,
        it: &mut Parts,
        member: usize,
        id: ConnId,
        granted: Option<(i64, i32)>,
    ) {
        self.greet(it, member, id, granted);
        if granted.is_none() {
            return self.close(it, member, id);
        }
        if let Some((session, _)) = granted {
            // The connection that it had here before is over.
            let conns = self.members[member].conns.iter();
            let old: Vec<ConnId> = conns
                .filter(|(other, conn)| **other != id && conn.state == State::Open(session))
                .map(|(other, _)| *other)
                .collect();
            for other in old {
                self.close(it, member, other);
            }
        }
        self.receive(it, member, id, &[]);
    }

    /// Answers a handshake.
    fn greet(&mut self, it: &mut Parts, member: usize, id: ConnId, granted: Option<(i64, i32)>) {
        let Some(conn) = self.members[member].conns.get_mut(&id) else {
            return;
        };
        let reply = match granted {
            Some((session_id, timeout_ms)) => {
                conn.state = State::Open(session_id);
                ConnectReply {
                    timeout_ms,
                    session_id,
                    password: [7; 16],
                }
            }
            None => ConnectReply::REFUSED,
        };
        let has_read_only = conn.has_read_only;
        frame::put(&mut conn.out, |out| reply.encode(has_read_only, out));
        if granted.is_some() {
            self.note_activity(it, member, id);
        }
        self.flush(it, member);
    }

    fn request(&mut self, it: &mut Parts, member: usize, id: ConnId, frame: Bytes) {
        self.note_activity(it, member, id);
        let mut reader = Reader::new(&frame);
        let Ok(RequestHeader { xid, op }) = RequestHeader::decode(&mut reader) else {
            return self.close(it, member, id);
        };
        let body = frame.slice_ref(reader.rest());
        let Some(conn) = self.members[member].conns.get_mut(&id) else {
            return;
        };
        let State::Open(session) = conn.state else {
            return;
        };
        match Op::from_number(op) {
            Some(op) if op.is_write() => {
                conn.lane.push_back(Lane::Waits);
                let message = Message::Request {
                    conn: id,
                    session,
                    xid,
                    op: op.number(),
                    body,
                };
                self.tell_leader(it, member, message);
            }
            Some(Op::Sync) => {
                conn.lane.push_back(Lane::Waits);
                let path = Reader::new(&body).string().unwrap_or_default();
                let message = Message::Sync {
                    conn: id,
                    session,
                    xid,
                    path,
                };
                self.tell_leader(it, member, message);
            }
            _ => {
                conn.lane.push_back(Lane::Read { xid, op, body });
                self.run_reads(it, member, id);
            }
        }
    }

    /// The member has heard from a session. If it leads, this renews the session.
    fn note_activity(&mut self, it: &mut Parts, index: usize, id: ConnId) {
        let member = &mut self.members[index];
        let Some(State::Open(session)) = member.conns.get(&id).map(|conn| conn.state) else {
            return;
        };
        if self.leader == Some(index) {
            if let Some(known) = self.sessions.get_mut(&session) {
                known.heard = it.now;
            }
            return;
        }
        member.active.insert(session);
        if !std::mem::replace(&mut member.is_report_planned, true) {
            let half = (self.settings.tick / 2).max(1);
            let phase = member.phase;
            // The next moment at which the leader asks, strictly after now.
            let at = (it.now - it.now.min(phase)) / half * half + phase;
            let at = if at <= it.now { at + half } else { at };
            let life = member.life;
            let event = EnsembleEvent::Ping {
                member: index,
                life,
            };
            self.put(it, at, event);
        }
    }

    /// The leader asks a member which sessions were active. The question is queued behind commits, and waits where they wait
    /// (`LearnerHandler.ping`); a paused leader asks as soon as it resumes.
    pub(super) fn ping(&mut self, it: &mut Parts, index: usize) {
        let life = self.members[index].life;
        let (at, event) = match self.leader_paused_until > it.now {
            true => {
                let event = EnsembleEvent::Ping {
                    member: index,
                    life,
                };
                (self.leader_paused_until, event)
            }
            false => {
                let event = EnsembleEvent::Report {
                    member: index,
                    life,
                };
                (self.down_arrival(it.now, index), event)
            }
        };
        self.put(it, at, event);
    }

    /// A member answers which sessions were active.
    pub(super) fn report(&mut self, it: &mut Parts, member: usize) {
        self.members[member].is_report_planned = false;
        let active = std::mem::take(&mut self.members[member].active);
        let active = Message::Active(active.into_iter().collect());
        self.tell_leader(it, member, active);
    }

    /// Answers the reads of a connection up to its next write or sync. Sometimes they wait in a queue, while the member forwards what is
    /// behind them.
    fn run_reads(&mut self, it: &mut Parts, index: usize, id: ConnId) {
        while self.is_read_next(index, id) {
            if self.is_late() {
                let delay = self.random.random_range(self.settings.link_delay.clone());
                let life = self.members[index].life;
                let event = EnsembleEvent::Reads {
                    member: index,
                    life,
                    conn: id,
                };
                return self.put(it, it.now + delay, event);
            }
            self.run_read(index, id);
        }
    }

    /// Answers the reads that are ahead of a write: they do not see it.
    fn run_waiting(&mut self, index: usize, id: ConnId) {
        while self.is_read_next(index, id) {
            self.run_read(index, id);
        }
    }

    fn is_read_next(&self, index: usize, id: ConnId) -> bool {
        let conn = self.members[index].conns.get(&id);
        matches!(
            conn.and_then(|conn| conn.lane.front()),
            Some(Lane::Read { .. })
        )
    }

    /// Answers a read that has waited, and then those behind it.
    pub(super) fn waited(&mut self, it: &mut Parts, index: usize, id: ConnId) {
        self.run_read(index, id);
        self.run_reads(it, index, id);
        self.flush(it, index);
    }

    /// Answers the next request of a connection, if it is a read.
    fn run_read(&mut self, index: usize, id: ConnId) {
        let member = &mut self.members[index];
        let Some(conn) = member.conns.get_mut(&id) else {
            return;
        };
        let Some(Lane::Read { .. }) = conn.lane.front() else {
            return;
        };
        let Some(Lane::Read { xid, op, body }) = conn.lane.pop_front() else {
            return;
        };
        let State::Open(session) = conn.state else {
            return;
        };
        let mut out = BytesMut::new();
        member.read(session, id, xid, op, &body, &mut out);
        member.push(id, |to| to.unsplit(out));
    }

    /// A member applies the log up to `upto`.
    pub(super) fn apply(&mut self, it: &mut Parts, index: usize, upto: u64) {
        while self.members[index].applied < upto {
            let at_index = self.members[index].applied;
            let Some(place) = at_index.checked_sub(self.base) else {
                break;
            };
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let answer = self.log.get(place).and_then(|entry| entry.answer.as_ref());
            if let Some(conn) = answer.filter(|it| it.member == index).map(|it| it.conn) {
                self.run_waiting(index, conn);
            }
            let Some(entry) = self.log.get_mut(place) else {
                break;
            };
            let at = At {
                zxid: entry.zxid,
                time_ms: entry.time_ms,
            };
            let member = &mut self.members[index];
            let closes = entry.closes;
            let closing = closes.map(|session| {
                let conns = member.conns.iter();
                conns
                    .filter(|(_, conn)| conn.state == State::Open(session))
                    .map(|(id, _)| *id)
                    .collect::<Vec<_>>()
            });
            for step in &entry.steps {
                let Some((kind, path)) = member.tree.apply(at, step) else {
                    continue;
                };
                for (conn, kind, path) in member.watches.fire(kind, &path) {
                    member.push(conn, |out| {
                        reply::put(out, EVENT_XID, EVENT_ZXID, Ok(()), |out| {
                            event::encode(kind, &path, out);
                        });
                    });
                }
            }
            member.tree.zxid = at.zxid;
            member.applied += 1;
            let answer = entry
                .answer
                .as_ref()
                .filter(|answer| answer.member == index);
            let answer = answer.map(|answer| (answer.conn, answer.frame.clone(), answer.opened));
            let is_asked_for = answer.is_some();
            if let Some((conn, frame, opened)) = answer {
                match opened {
                    Some(session) => {
                        let timeout = self.sessions.get(&session).map_or(0, |known| known.timeout);
                        let granted = Some((session, super::to_ms(timeout)));
                        self.greet(it, index, conn, granted);
                        self.receive(it, index, conn, &[]);
                    }
                    None if frame.is_empty() => self.close(it, index, conn),
                    None => self.answer(it, index, conn, &frame),
                }
            }
            if let Some(session) = closes
                && self.leader == Some(index)
            {
                self.sessions.remove(&session);
            }
            for conn in closing.into_iter().flatten() {
                // An expiry just closes the connection; a close is answered first.
                if is_asked_for {
                    self.flush(it, index);
                }
                self.close(it, index, conn);
            }
        }
        self.answer_syncs(it, index);
        self.flush(it, index);
    }

    /// The oldest request of a connection that waits for the leader is answered.
    fn answer(&mut self, it: &mut Parts, index: usize, id: ConnId, frame: &[u8]) {
        self.run_waiting(index, id);
        if let Some(conn) = self.members[index].conns.get_mut(&id)
            && let Some(Lane::Waits) = conn.lane.front()
        {
            conn.lane.pop_front();
            conn.out.extend_from_slice(frame);
            self.run_reads(it, index, id);
        }
    }

    /// Answers the syncs that the member has caught up with.
    pub(super) fn answer_syncs(&mut self, it: &mut Parts, index: usize) {
        let applied = self.members[index].applied;
        let mut due = Vec::new();
        self.members[index].syncs.retain(|(upto, conn, xid, path)| {
            let is_due = *upto <= applied;
            if is_due {
                due.push((*conn, *xid, path.clone()));
            }
            !is_due
        });
        for (conn, xid, path) in due {
            let zxid = self.members[index].zxid();
            let mut frame = BytesMut::new();
            reply::put(&mut frame, xid, zxid, Ok(()), |out| out.put_ustring(&path));
            self.answer(it, index, conn, &frame);
        }
        self.flush(it, index);
    }

    /// Sends the gathered output of all connections of a member.
    fn flush(&mut self, it: &mut Parts, index: usize) {
        for (id, conn) in &mut self.members[index].conns {
            if !conn.out.is_empty() {
                let bytes = conn.out.split().freeze();
                let now = it.now;
                it.net.send_down(&mut it.agenda, now, *id, bytes);
            }
        }
    }

    fn close(&mut self, it: &mut Parts, index: usize, id: ConnId) {
        if let Some(conn) = self.members[index].conns.get_mut(&id) {
            let now = it.now;
            // Refusals are sent, and the replies before them.
            if !conn.out.is_empty() {
                let bytes = conn.out.split().freeze();
                it.net.send_down(&mut it.agenda, now, id, bytes);
            }
            it.net.close_by_server(&mut it.agenda, now, id);
        }
        self.members[index].forget(id);
    }

    /// A member drops all its clients and serves none.
    pub(super) fn drop_clients(&mut self, it: &mut Parts, index: usize) {
        let member = &mut self.members[index];
        member.is_serving = false;
        member.life += 1;
        member.syncs.clear();
        member.active.clear();
        member.watches.clear();
        let conns: Vec<ConnId> = std::mem::take(&mut member.conns).into_keys().collect();
        for conn in conns {
            let now = it.now;
            it.net.close_by_server(&mut it.agenda, now, conn);
        }
    }
}

/// The error of a request that is not known here.
pub(super) const UNKNOWN: ErrorCode = ErrorCode::Unimplemented;
