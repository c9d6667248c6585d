//! The order of steps in which the model could have produced a history.
//!
//! A reply names the zxid of its state, so each read has its place between two writes on its member. Writes have the leader's time. Between
//! those, the model is free: how long each message and each commit takes. The earliest possible moment of every step is the best choice.

use std::collections::BTreeMap;

use bellwether_server::files::txn::TxnBody;
use bellwether_testkit::{Frame, Reply};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;

use super::history::{Connection, Fault, History, Micros, Sent};
use super::order::{Impossible, Number, Order};
use super::step::Step;
use crate::world::server_epoch_ms;

const NEVER: Micros = Micros::MAX;

/// Time from the decision to end a session to the write that ends it, at most.
const CLOSING_MAX: Micros = 1_000_000;

/// Number of writes that are visible.
type Place = usize;

struct Schedule<'a> {
    history: &'a History,
    order: Order<Step>,
    proposals: Vec<Number>,
    /// By member and write.
    applies: Vec<Vec<Number>>,
    places: BTreeMap<i64, Place>,
    /// Writes by session and xid; creations of sessions have xid 0.
    by_request: BTreeMap<(i64, i32), usize>,
    ends: BTreeMap<i64, usize>,
    /// Elections, except the first.
    elections: Vec<Election>,
    restarts: Vec<(Fault, Number)>,
    /// When members receive writes, by session and xid.
    receives: BTreeMap<(i64, i32), Number>,
    /// The last answer of each client.
    last_answers: BTreeMap<usize, Number>,
}

struct Election {
    number: Number,
    lost_at: Micros,
}

/// Puts the steps into an order, or names what has no place in it.
pub(super) fn schedule(history: &History, members: usize) -> Result<Vec<(Micros, Step)>, String> {
    let mut schedule = Schedule::new(history, members)?;
    for number in 0..history.connections.len() {
        schedule.connection(number)?;
    }
    schedule
        .order
        .earliest()
        .map_err(|why| explain(history, why))
}

fn explain(history: &History, why: Impossible<Step>) -> String {
    let names = |steps: &[Step], by: &str| {
        let names = steps.iter().map(|step| step.describe(history));
        names.collect::<Vec<_>>().join(by)
    };
    let (text, step) = match &why {
        Impossible::Late {
            step,
            by,
            waited_for,
        } => {
            let named = step.describe(history);
            let others = names(waited_for, "\n  after ");
            let text = format!("{named} is {by} µs too early for the model\n  after {others}");
            (text, Some(*step))
        }
        Impossible::Cycle(steps) => {
            let named = names(steps, "\n  before ");
            (
                format!("no order is possible:\n  {named}"),
                steps.first().copied(),
            )
        }
    };
    let client = step.and_then(|step| step.client(history));
    format!("{text}\n{}", timeline(history, client))
}

/// The connections of a client, and their writes.
fn timeline(history: &History, client: Option<usize>) -> String {
    let connections = history.connections.iter().enumerate();
    let own = connections.filter(|(_, connection)| Some(connection.client) == client);
    let lines: Vec<String> = own
        .map(|(number, connection)| {
            let Connection { member, at, .. } = connection;
            let greeted = connection.greeting.map(|greeting| greeting.at);
            let session = connection.granted().unwrap_or(connection.session);
            let writes = history.txns.iter().filter(|txn| {
                let is_own = |sent: &Sent| sent.xid == txn.cxid;
                txn.session_id == session && connection.requests.iter().any(is_own)
            });
            let writes: Vec<String> = writes
                .map(|txn| format!("{:x} at {}", txn.zxid, micros(txn.time_ms)))
                .collect();
            format!("  {number} to {member} at {at}, greeted {greeted:?}, {session:x}: {writes:?}")
        })
        .collect();
    lines.join("\n")
}

impl<'a> Schedule<'a> {
    fn new(history: &'a History, members: usize) -> Result<Self, String> {
        let mut order = Order::default();
        let mut places = BTreeMap::new();
        let (mut by_request, mut ends) = (BTreeMap::new(), BTreeMap::new());
        let mut proposals: Vec<Number> = Vec::new();
        let mut applies = vec![Vec::new(); members];
        let mut elections: Vec<Election> = Vec::new();
        let mut leader = history.leaders.first().ok_or("no leader")?.1;
        for (write, txn) in history.txns.iter().enumerate() {
            let before = write.checked_sub(1).map(|last| &history.txns[last]);
            let is_first = before.is_some_and(|last| last.zxid >> 32 != txn.zxid >> 32);
            let follows = match before {
                None => true,
                Some(_) if is_first => txn.zxid & 0xFFFF_FFFF == 1,
                Some(last) => last.zxid + 1 == txn.zxid,
            };
            if !follows {
                return Err(format!("the log has a gap before {:#x}", txn.zxid));
            }
            let at = micros(txn.time_ms);
            let proposal = order.add(Step::Propose(write), at, at + 999);
            if is_first {
                let era = elections.len() + 1;
                let known = history.leaders.get(era);
                let (_, next) = known
                    .filter(|(epoch, _)| *epoch == txn.zxid >> 32)
                    .ok_or_else(|| format!("no leader is known for {:#x}", txn.zxid))?;
                let lost_at = history
                    .faults
                    .iter()
                    .filter_map(|fault| match fault {
                        Fault::Killed { member, from, .. } if *member == leader => Some(*from),
                        _ => None,
                    })
                    .find(|from| elections.last().is_none_or(|last| last.lost_at < *from))
                    .ok_or("an election without a reason")?;
                let number = order.add(Step::Elect(era), lost_at, NEVER);
                order.before(number, proposal);
                // Followers serve before they have applied all of them.
                order.before(applies[*next][write - 1], number);
                elections.push(Election { number, lost_at });
                leader = *next;
            }
            if let Some(last) = proposals.last() {
                order.before(*last, proposal);
            }
            let step = |member| Step::Apply(member, write);
            let own: Vec<Number> = (0..members)
                .map(|member| order.add(step(member), at, NEVER))
                .collect();
            for (member, number) in own.iter().enumerate() {
                order.before(proposal, *number);
                if let Some(last) = applies[member].last() {
                    order.before(*last, *number);
                }
                applies[member].push(*number);
            }
            proposals.push(proposal);
            places.insert(txn.zxid, write + 1);
            if write == 0 {
                places.insert(txn.zxid - 1, 0);
            }
            if is_first {
                // A leader that has written nothing shows the beginning of its epoch.
                places.insert(txn.zxid - 1, write);
            }
            match (&txn.body, txn.cxid) {
                (TxnBody::CreateSession { .. }, _) => {
                    by_request.insert((txn.session_id, 0), write);
                }
                (TxnBody::CloseSession { .. }, cxid) => {
                    ends.entry(txn.session_id).or_insert(write);
                    if cxid != 0 {
                        by_request.insert((txn.session_id, cxid), write);
                    }
                }
                (_, cxid) => {
                    by_request.insert((txn.session_id, cxid), write);
                }
            }
        }
        let mut restarts = Vec::new();
        for fault in &history.faults {
            if let Fault::Killed { member, from, to } = *fault {
                let number = order.add(Step::Restart(member), to, NEVER);
                for election in elections.iter().filter(|one| one.lost_at == from) {
                    order.before(election.number, number);
                }
                restarts.push((*fault, number));
            }
        }
        Ok(Self {
            history,
            order,
            proposals,
            applies,
            places,
            by_request,
            ends,
            elections,
            restarts,
            receives: BTreeMap::new(),
            last_answers: BTreeMap::new(),
        })
    }

    /// Adds the steps of a connection.
    fn connection(&mut self, number: usize) -> Result<(), String> {
        let connection = &self.history.connections[number];
        let Some(greeting) = connection.greeting else {
            return Ok(());
        };
        let named = |what: &str| {
            format!(
                "connection {number} of client {}: {what}",
                connection.client
            )
        };
        let seen = match connection.seen {
            0 => 0,
            zxid => *self
                .places
                .get(&zxid)
                .ok_or_else(|| named("it has seen a zxid that is not in the log"))?,
        };
        let member = connection.member;
        // A member reads requests when it has answered the handshake.
        let (first, greeted) = match (connection.session, greeting.granted) {
            (0, Some((session, _))) => {
                let write = *self
                    .by_request
                    .get(&(session, 0))
                    .ok_or_else(|| named("its session was never created"))?;
                let opens = self.proposals[write];
                self.order.not_before(opens, connection.at);
                let opened = self.applies[member][write];
                self.order.not_after(opened, greeting.at);
                (opens, opened)
            }
            (0, None) => return Err(named("a new session was refused")),
            (session, granted) => {
                let step = Step::Attach(number);
                let deadline = match granted {
                    Some(_) => greeting.at,
                    // A leader refuses a session from when it decides to end it, and the write follows.
                    None => greeting.at + CLOSING_MAX,
                };
                let attaches = self.order.add(step, early(connection.at), deadline);
                match (granted, self.ends.get(&session)) {
                    (Some(_), Some(end)) => self.order.before(attaches, self.proposals[*end]),
                    (None, Some(end)) => self.order.before(self.proposals[*end], attaches),
                    (Some(_), None) => {}
                    (None, None) => return Err(named("refused, though its session never ended")),
                }
                let moves = match self.leader_when(connection.at) == Some(member) {
                    // The leader notes it after it has answered, and before the first write of the connection.
                    true => self.first_write(number),
                    false => Some(attaches),
                };
                self.after_earlier_writes(number, attaches, moves);
                (attaches, attaches)
            }
        };
        if seen > 0 {
            self.order.before(self.applies[member][seen - 1], first);
        }
        if let Some(last) = self.last_answers.get(&connection.client) {
            self.order.before(*last, first);
        }
        self.within_life(number, first);
        let Some(session) = connection.granted() else {
            return Ok(());
        };
        self.requests(number, session, greeted, seen)
    }

    /// A session that has moved to another member (`moves`) makes no more writes through its earlier connections, unless they fail. Through the
    /// same member, those that it had received may still follow, even behind requests of the new connection.
    fn after_earlier_writes(&mut self, number: usize, attaches: Number, moves: Option<Number>) {
        let connections = &self.history.connections;
        let connection = &connections[number];
        let session = connection.session;
        let earlier = connections[..number]
            .iter()
            .filter(|earlier| earlier.granted() == Some(session));
        for earlier in earlier {
            for sent in &earlier.requests {
                let Some(write) = self.by_request.get(&(session, sent.xid)) else {
                    continue;
                };
                if earlier.member == connection.member {
                    let received = self.receives.get(&(session, sent.xid));
                    if let Some(received) = received {
                        self.order.before(*received, attaches);
                    }
                    continue;
                }
                let txn = &self.history.txns[*write];
                let greeted = connection.greeting.map_or(0, |greeting| greeting.at);
                let is_noted_late = self.leader_when(earlier.at) == Some(earlier.member);
                let is_later = micros(txn.time_ms) > greeted
                    && (is_noted_late
                        || lost_handshake(self.history, session, earlier.member).is_some());
                if let Some(moves) = moves
                    && !is_refused(&txn.body)
                    && !is_later
                {
                    self.order.before(self.proposals[*write], moves);
                }
            }
        }
    }

    /// The first write of a connection that was not refused, if it has one.
    fn first_write(&self, number: usize) -> Option<Number> {
        let connection = &self.history.connections[number];
        let session = connection.granted()?;
        let sent = connection.requests.iter();
        let mut writes = sent.filter_map(|sent| self.by_request.get(&(session, sent.xid)));
        let first = writes.find(|write| !is_refused(&self.history.txns[**write].body))?;
        Some(self.proposals[*first])
    }

    /// A connection lives between two deaths of its member or of the leader.
    fn within_life(&mut self, place: usize, number: Number) {
        let connection = &self.history.connections[place];
        let at = connection.at;
        for election in &self.elections {
            match election.lost_at < at {
                true => self.order.before(election.number, number),
                false => {
                    self.order.before(number, election.number);
                    self.order.not_before(election.number, connection.last_at());
                }
            }
        }
        for (fault, restart) in &self.restarts {
            let Fault::Killed { member, from, .. } = *fault else {
                continue;
            };
            if member != connection.member {
                continue;
            }
            match from < at {
                true => self.order.before(*restart, number),
                false => {
                    self.order.before(number, *restart);
                    self.order.not_before(*restart, connection.last_at());
                }
            }
        }
    }

    fn requests(
        &mut self,
        number: usize,
        session: i64,
        greeted: Number,
        seen: Place,
    ) -> Result<(), String> {
        let (mut received, mut answered) = (greeted, greeted);
        let connection = &self.history.connections[number];
        let replies: Vec<(Micros, &Reply)> = connection
            .received
            .iter()
            .filter_map(|received| match &received.frame {
                Frame::Reply(reply) => Some((received.at, reply)),
                Frame::Event(_) => None,
            })
            .collect();
        let member = connection.member;
        let (mut shown, mut lost) = (seen, None);
        for (place, sent) in connection.requests.iter().enumerate() {
            let reply = replies.get(place).copied();
            let named = |what: &str| {
                let step = Step::Receive(number, place).describe(self.history);
                format!("{step} {what}")
            };
            if reply.is_some_and(|(_, reply)| reply.xid != sent.xid) {
                return Err(named("is answered out of order"));
            }
            let write = self.by_request.get(&(session, sent.xid)).copied();
            if lost.is_some() && (reply.is_some() || write.is_some()) {
                return Err(named("was executed, and an earlier request was not"));
            }
            let at = match reply {
                None => None,
                Some((at, reply)) => {
                    let known = self.places.get(&reply.zxid);
                    let now = *known.ok_or_else(|| named("shows a zxid that is not in the log"))?;
                    if now < shown {
                        return Err(named("shows an older state than one before"));
                    }
                    shown = now;
                    Some((at, now))
                }
            };
            let step = Step::Receive(number, place);
            match (kind(sent), at) {
                (RequestKind::Write, _) => {
                    let Some(write) = write else {
                        if reply.is_some() {
                            return Err(named("is answered, and not in the log"));
                        }
                        lost = Some(place);
                        continue;
                    };
                    let receive = self.order.add(step, early(sent.at), NEVER);
                    self.order.before(received, receive);
                    self.order.before(receive, self.proposals[write]);
                    self.receives.insert((session, sent.xid), receive);
                    // The connection ends when its member learns that the session has.
                    let end = self.ends.get(&session).filter(|end| **end < write);
                    if let Some(end) = end {
                        self.order.before(receive, self.applies[member][*end]);
                    }
                    received = receive;
                    if let Some((at, _)) = at {
                        answered = self.applies[member][write];
                        self.order.not_after(answered, at);
                    }
                }
                (_, None) => {}
                (RequestKind::Sync, Some((at, now))) => {
                    let receive = self.order.add(step, early(sent.at), NEVER);
                    self.order.before(received, receive);
                    received = receive;
                    let step = Step::Synced(number, place);
                    let synced = self.order.add(step, sent.at, at);
                    self.order.before(receive, synced);
                    self.order.before(answered, synced);
                    self.at_place(synced, member, now);
                    // The leader lets a follower wait for what it has proposed.
                    let next = self.proposals.get(now);
                    let zxid = reply.map_or(0, |(_, reply)| reply.zxid);
                    if let Some(next) = next.filter(|_| self.leader_at(zxid) != Some(member)) {
                        self.order.before(receive, *next);
                    }
                    answered = synced;
                }
                (RequestKind::Read, Some((at, now))) => {
                    let receive = self.order.add(step, early(sent.at), NEVER);
                    self.order.before(received, receive);
                    received = receive;
                    let read = self.order.add(Step::Read(number, place), sent.at, at);
                    self.order.before(receive, read);
                    self.order.before(answered, read);
                    self.at_place(read, member, now);
                    answered = read;
                }
            }
            self.within_life(number, received);
            self.within_life(number, answered);
        }
        self.last_answers.insert(connection.client, answered);
        Ok(())
    }

    /// The leader that a connection finds.
    fn leader_when(&self, at: Micros) -> Option<usize> {
        let elections = self.elections.iter();
        let era = elections.filter(|election| election.lost_at < at).count();
        self.history.leaders.get(era).map(|(_, member)| *member)
    }

    /// The leader of the epoch of a zxid.
    fn leader_at(&self, zxid: i64) -> Option<usize> {
        let mut leaders = self.history.leaders.iter();
        let own = leaders.find(|(epoch, _)| *epoch == zxid >> 32);
        own.map(|(_, member)| *member)
    }

    /// A step happens while exactly `now` writes are visible on its member.
    fn at_place(&mut self, number: Number, member: usize, now: Place) {
        if let Some(last) = now.checked_sub(1) {
            self.order.before(self.applies[member][last], number);
        }
        if let Some(next) = self.applies[member].get(now) {
            self.order.before(number, *next);
        }
    }
}

/// A connection with this session to a member whose handshake was not answered. The leader may have learned of it after a later one.
pub(super) fn lost_handshake(
    history: &History,
    session: i64,
    member: usize,
) -> Option<&Connection> {
    let is_lost = |connection: &&Connection| {
        let Connection { greeting, .. } = connection;
        connection.session == session && connection.member == member && greeting.is_none()
    };
    history.connections.iter().find(is_lost)
}

/// Before all writes of the same millisecond: their times have no fraction.
fn early(at: Micros) -> Micros {
    (at / 1_000 * 1_000).saturating_sub(1)
}

/// The time of a write.
pub(super) fn micros(time_ms: i64) -> Micros {
    (time_ms - server_epoch_ms(0)).unsigned_abs() * 1_000
}

/// What a member does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Write,
    Sync,
}

pub(super) fn kind(sent: &Sent) -> RequestKind {
    match sent.request.op() {
        Some(Op::Sync) => RequestKind::Sync,
        Some(op) if op.is_write() => RequestKind::Write,
        _ => RequestKind::Read,
    }
}

/// Whether a write was refused because its session had moved, or ended.
fn is_refused(body: &TxnBody) -> bool {
    match body {
        TxnBody::Error(code) => *code == ErrorCode::SessionExpired as i32 || is_moved(body),
        TxnBody::Multi(parts) => parts.iter().any(is_refused),
        _ => false,
    }
}

/// Whether a write was refused because its session had moved.
pub(super) fn is_moved(body: &TxnBody) -> bool {
    match body {
        TxnBody::Error(code) => *code == ErrorCode::SessionMoved as i32,
        TxnBody::Multi(parts) => parts.iter().any(is_moved),
        _ => false,
    }
}
