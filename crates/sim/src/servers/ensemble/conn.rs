//! The connections of a member: handshakes, requests in their order, and answers.

use std::collections::VecDeque;

use bellwether_wire::connect::{ConnectReply, ConnectRequest};
use bellwether_wire::frame;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request::RequestHeader;
use bytes::{Bytes, BytesMut};
use rand::Rng as _;

use super::{Ensemble, EnsembleEvent, Message};
use crate::world::{ConnId, Ms, Parts};

/// The largest request.
const FRAME_BYTES_MAX: usize = 0xF_FFFF;

#[derive(Debug, Default)]
pub(super) struct ClientConn {
    input: BytesMut,
    pub(super) state: ConnState,
    has_read_only: bool,
    /// Its thread has read a request, and does not run.
    is_stalled: bool,
    lane: VecDeque<Lane>,
    pub(super) out: BytesMut,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnState {
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

impl Ensemble {
    /// Whether a member accepts a connection.
    pub(super) fn accept(&mut self, member: usize, conn: ConnId) -> bool {
        let Some(member) = self.members.get_mut(member) else {
            return false;
        };
        if member.is_serving {
            member.conns.insert(conn, ClientConn::default());
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
            if conn.state == ConnState::Asking || conn.is_stalled {
                return;
            }
            match frame::take(&mut conn.input, FRAME_BYTES_MAX) {
                Ok(Some(frame)) if conn.state == ConnState::Fresh => {
                    self.handshake(it, member, id, &frame);
                }
                Ok(Some(frame)) => match self.stall() {
                    None => self.request(it, member, id, frame),
                    Some(time) => self.stall_conn(it, member, id, frame, time),
                },
                Ok(None) => break,
                Err(_) => return self.close(it, member, id),
            }
        }
        self.flush(it, member);
    }

    /// How long the thread of a connection stalls before a request, if it does.
    fn stall(&mut self) -> Option<Ms> {
        let stalls = self.settings.stalls;
        let is_stalled = stalls > 0 && self.random.random_ratio(stalls, 100);
        is_stalled.then(|| self.random.random_range(0..=self.settings.stall_max))
    }

    fn stall_conn(&mut self, it: &mut Parts, member: usize, id: ConnId, frame: Bytes, time: Ms) {
        let life = self.members[member].life;
        let Some(conn) = self.members[member].conns.get_mut(&id) else {
            return;
        };
        if let ConnState::Open(session) = conn.state {
            conn.is_stalled = true;
            let event = EnsembleEvent::Resumes {
                member,
                life,
                conn: id,
                session,
                frame,
            };
            self.put(it, it.now + time, event);
        }
    }

    /// The thread of a connection goes on. If the connection is over meanwhile, a write that was read from it still goes to the leader,
    /// behind requests of the next connection of its session.
    pub(super) fn resume(
        &mut self,
        it: &mut Parts,
        member: usize,
        id: ConnId,
        session: i64,
        frame: Bytes,
    ) {
        if let Some(conn) = self.members[member].conns.get_mut(&id) {
            conn.is_stalled = false;
            self.request(it, member, id, frame);
            return self.receive(it, member, id, &[]);
        }
        let mut reader = Reader::new(&frame);
        if let Ok(RequestHeader { xid, op }) = RequestHeader::decode(&mut reader)
            && Op::from_number(op).is_some_and(Op::is_write)
        {
            let body = frame.slice_ref(reader.rest());
            let message = write(id, session, xid, op, body);
            self.tell_leader(it, member, message);
        }
    }

    fn handshake(&mut self, it: &mut Parts, member: usize, id: ConnId, frame: &[u8]) {
        let Ok(request) = ConnectRequest::decode(frame) else {
            return self.close(it, member, id);
        };
        let member = self.route(it, member, id, request.last_zxid_seen);
        // A client's view never goes back: it must try another member.
        if request.last_zxid_seen > self.members[member].zxid() {
            return self.close(it, member, id);
        }
        if let Some(conn) = self.members[member].conns.get_mut(&id) {
            conn.state = ConnState::Asking;
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

    /// The member that a connection leads to: `member`, or the one that lags most of those that admit the client. A member that has not
    /// even seen what the client has would only refuse it. Which one admits it is known here, and not when the connection is accepted.
    fn route(&mut self, it: &mut Parts, member: usize, id: ConnId, last_zxid_seen: i64) -> usize {
        let to_laggard = self.settings.to_laggard;
        if to_laggard == 0 || !self.random.random_ratio(to_laggard, 100) {
            return member;
        }
        let Some(process) = it.net.conn(id).map(|conn| conn.process) else {
            return member;
        };
        let admits = |index: &usize| {
            let at = &self.members[*index];
            let is_reached = it.net.open_at(process, *index) <= it.now;
            at.is_serving && is_reached && at.zxid() >= last_zxid_seen
        };
        let admitting = (0..self.members.len()).filter(admits);
        let laggard =
            admitting.min_by_key(|index| (self.members[*index].applied, *index != member));
        let laggard = laggard.unwrap_or(member);
        if laggard != member
            && let Some(conn) = self.members[member].conns.remove(&id)
        {
            self.members[laggard].conns.insert(id, conn);
            it.net.reroute(id, laggard);
            it.trace.add(it.now, 11, id ^ laggard as u64, || {
                format!("connection {id} leads to server {laggard}, which lags most")
            });
        }
        laggard
    }

    /// The leader has answered whether a session that reconnects here is alive.
    pub(super) fn revalidated(
        &mut self,
        it: &mut Parts,
        member: usize,
        id: ConnId,
        granted: Option<(i64, i32)>,
    ) {
        if !self.members[member].conns.contains_key(&id) {
            // Its client has given it up.
            return;
        }
        self.greet(it, member, id, granted);
        if granted.is_none() {
            return self.close(it, member, id);
        }
        if let Some((session, _)) = granted {
            // The connection that it had here before is over.
            let conns = self.members[member].conns.iter();
            let old: Vec<ConnId> = conns
                .filter(|(other, conn)| **other != id && conn.state == ConnState::Open(session))
                .map(|(other, _)| *other)
                .collect();
            for other in old {
                self.close(it, member, other);
            }
        }
        self.receive(it, member, id, &[]);
    }

    /// Answers a handshake.
    pub(super) fn greet(
        &mut self,
        it: &mut Parts,
        member: usize,
        id: ConnId,
        granted: Option<(i64, i32)>,
    ) {
        let Some(conn) = self.members[member].conns.get_mut(&id) else {
            return;
        };
        let reply = match granted {
            Some((session_id, timeout_ms)) => {
                conn.state = ConnState::Open(session_id);
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
        let ConnState::Open(session) = conn.state else {
            return;
        };
        match Op::from_number(op) {
            Some(op) if op.is_write() => {
                conn.lane.push_back(Lane::Waits);
                let message = write(id, session, xid, op.number(), body);
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
    pub(super) fn run_waiting(&mut self, index: usize, id: ConnId) {
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
        let ConnState::Open(session) = conn.state else {
            return;
        };
        let mut out = BytesMut::new();
        member.read(session, id, xid, op, &body, &mut out);
        member.push(id, |to| to.unsplit(out));
    }

    /// The oldest request of a connection that waits for the leader is answered.
    pub(super) fn answer(&mut self, it: &mut Parts, index: usize, id: ConnId, frame: &[u8]) {
        self.run_waiting(index, id);
        if let Some(conn) = self.members[index].conns.get_mut(&id)
            && let Some(Lane::Waits) = conn.lane.front()
        {
            conn.lane.pop_front();
            conn.out.extend_from_slice(frame);
            self.run_reads(it, index, id);
        }
    }

    /// Sends the gathered output of all connections of a member.
    pub(super) fn flush(&mut self, it: &mut Parts, index: usize) {
        for (id, conn) in &mut self.members[index].conns {
            if !conn.out.is_empty() {
                let bytes = conn.out.split().freeze();
                let now = it.now;
                it.net.send_down(&mut it.agenda, now, *id, bytes);
            }
        }
    }

    pub(super) fn close(&mut self, it: &mut Parts, index: usize, id: ConnId) {
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
}

/// A write of a connection, for the leader.
fn write(conn: ConnId, session: i64, xid: i32, op: i32, body: Bytes) -> Message {
    Message::Request {
        conn,
        session,
        xid,
        op,
        body,
    }
}
