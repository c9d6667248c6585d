//! Runs the model through a history.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_server::files::txn::TxnBody;
use bellwether_testkit::{ConnectOptions, Frame};
use bytes::BytesMut;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::super::{Ensemble, EnsembleEvent, EnsembleSettings, Message, tree};
use super::history::{Fault, History, Micros};
use super::schedule::{is_moved, lost_handshake, micros, schedule};
use super::step::Step;
use super::{MEMBERS, SYNC_LIMIT, TICK, TIMEOUT_MAX};
use crate::faults;
use crate::servers::{self, ServerEvent};
use crate::world::{Agenda, ConnId, Event, Ms, Net, Parts, Process, Trace};

/// Number of steps that an error shows.
const EXCERPT_STEPS: usize = 60;

/// Whether the model could have produced this history. The error names the first frame that it could not.
pub(super) fn allows(history: &History) -> Result<(), String> {
    let steps = schedule(history, MEMBERS)
        .map_err(|why| format!("{why}\nleaders: {:x?}", history.leaders))?;
    let mut replay = Replay::new(history);
    for (place, (at, step)) in steps.iter().enumerate() {
        replay.it.now = replay.it.now.max(at / 1_000);
        replay.step(*step).map_err(|why| {
            let excerpt = excerpt(history, &steps[..=place]);
            format!("{}: {why}\n{excerpt}", step.describe(history))
        })?;
    }
    replay.is_complete()
}

/// The last steps of the client of the last one, and what happened to the members meanwhile.
fn excerpt(history: &History, steps: &[(Micros, Step)]) -> String {
    let client = steps.last().and_then(|(_, step)| step.client(history));
    let concerns = |step: &Step| {
        let is_of_members = matches!(step, Step::Elect(_) | Step::Restart(_));
        is_of_members || step.client(history) == client
    };
    let own: Vec<String> = steps
        .iter()
        .filter(|(_, step)| concerns(step))
        .map(|(at, step)| format!("  at {at} µs: {}", step.describe(history)))
        .collect();
    own[own.len().saturating_sub(EXCERPT_STEPS)..].join("\n")
}

pub(super) struct Replay<'a> {
    pub(super) history: &'a History,
    pub(super) it: Parts,
    pub(super) model: Ensemble,
    pub(super) lines: Vec<Line>,
    /// Ids of sessions: those of the model, and the recorded ones.
    pub(super) recorded: BTreeMap<i64, i64>,
    own: BTreeMap<i64, i64>,
    /// Writes and syncs on their way to the leader or back, by connection and xid.
    up: BTreeMap<(ConnId, i32), EnsembleEvent>,
    down: BTreeMap<(ConnId, i32), EnsembleEvent>,
    /// When the request was sent that is received at this moment.
    sent_at: Micros,
}

/// A connection of the model.
#[derive(Default)]
pub(super) struct Line {
    pub(super) id: ConnId,
    pub(super) input: BytesMut,
    pub(super) is_greeted: bool,
    /// Number of frames that the model has sent too.
    pub(super) explained: usize,
}

impl<'a> Replay<'a> {
    fn new(history: &'a History) -> Self {
        let settings = EnsembleSettings {
            members: MEMBERS,
            tick: ms(TICK),
            sync_limit: SYNC_LIMIT,
            // The schedule decides when messages arrive, when members apply commits, also the leader, and when they execute reads.
            link_delay: 1..2,
            lag_max: 1,
            lag_changes: 100,
            stalls: 0,
            stall_max: 0,
            pace_max: 0,
            reap_every: Ms::MAX / 2,
            election: 1..2,
            expires_early: true,
            forgives: true,
            timeout_max: ms(TIMEOUT_MAX),
            to_laggard: 0,
        };
        let mut model = Ensemble::new(settings, 0);
        if let (Some(first), Some((_, leader))) = (history.txns.first(), history.leaders.first()) {
            model.epoch = first.zxid >> 32;
            model.counter = (first.zxid & 0xFFFF_FFFF) - 1;
            model.head.zxid = first.zxid - 1;
            for member in &mut model.members {
                member.tree.zxid = first.zxid - 1;
            }
            model.leader = Some(*leader);
        }
        let connections = history.connections.iter();
        Self {
            history,
            it: Parts {
                now: 0,
                agenda: Agenda::default(),
                net: Net::new(StdRng::seed_from_u64(0), 0..1),
                trace: Trace::new(false),
            },
            model,
            lines: connections.map(|_| Line::default()).collect(),
            recorded: BTreeMap::new(),
            own: BTreeMap::new(),
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            sent_at: 0,
        }
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Propose(write) => self.propose(write)?,
            Step::Apply(member, write) => self.apply(member, write),
            Step::Attach(number) => self.connect(number),
            Step::Receive(number, place) => self.receive(number, place),
            Step::Read(number, _) => {
                let member = self.history.connections[number].member;
                let life = self.model.members[member].life;
                let conn = self.lines[number].id;
                let waited = EnsembleEvent::Reads { member, life, conn };
                self.model.handle(&mut self.it, waited);
            }
            Step::Synced(number, place) => {
                let xid = self.history.connections[number].requests[place].xid;
                if let Some(event) = self.down.remove(&(self.lines[number].id, xid)) {
                    self.model.handle(&mut self.it, event);
                }
            }
            Step::Elect(era) => self.elect(era),
            Step::Restart(member) => {
                let now = self.it.now;
                if self.model.members[member].is_serving {
                    self.crash(member);
                }
                self.model.members[member].back_at = now;
                self.model.join(&mut self.it, member);
            }
        }
        self.drain();
        self.compare(step)
    }

    fn own_id(&self, recorded: i64) -> i64 {
        self.own.get(&recorded).copied().unwrap_or_default()
    }

    /// The leader proposes a write.
    fn propose(&mut self, write: usize) -> Result<(), String> {
        let txn = &self.history.txns[write];
        let known = self.history.connections.iter().position(|connection| {
            connection.session == 0 && connection.granted() == Some(txn.session_id)
        });
        match (&txn.body, known) {
            // Sessions of nobody, which own nothing: they were opened to see whether a server serves, or their greeting was lost.
            (_, None) => self.nothing(),
            (TxnBody::CreateSession { .. }, Some(number)) => {
                self.connect(number);
                let opened = self.model.log.back().and_then(|entry| entry.opens);
                let id = opened.ok_or("the model opens no session")?;
                self.own.insert(txn.session_id, id);
                self.recorded.insert(id, txn.session_id);
            }
            (TxnBody::CloseSession { .. }, Some(_)) if txn.cxid == 0 => {
                let id = self.own_id(txn.session_id);
                let known = self.model.sessions.get(&id);
                let known = known.ok_or("the model has no such session")?;
                let (planned, heard, timeout) = (known.planned, known.heard, known.timeout);
                let before = self.model.log.len();
                self.model.expiry(&mut self.it, id, planned);
                if self.model.log.len() == before {
                    let silent = self.it.now - heard;
                    return Err(format!(
                        "expired {silent} ms after the leader heard from it, and its timeout is {timeout} ms"
                    ));
                }
            }
            (body, Some(_)) => {
                let (number, xid) = self
                    .request_of(txn.session_id, txn.cxid)
                    .ok_or("nobody asked for this write")?;
                let id = self.lines[number].id;
                let member = self.history.connections[number].member;
                match self.up.remove(&(id, xid)) {
                    _ if is_moved(body) => self.model.moved(&mut self.it, member, id),
                    Some(message) => {
                        self.move_back(txn.session_id, member);
                        self.model.handle(&mut self.it, message);
                    }
                    None => self.late_write(number, xid)?,
                }
            }
        }
        if let (TxnBody::CloseSession { paths }, Some(entry)) =
            (&txn.body, self.model.log.back_mut())
        {
            // The model draws this order at random.
            entry.steps.sort_by_key(|step| match step {
                tree::TreeStep::Delete(path) => paths.iter().position(|known| known == path),
                _ => None,
            });
        }
        let made = self.model.log.back();
        let made = made.map(|entry| {
            let changes = entry
                .steps
                .iter()
                .any(|step| !matches!(step, tree::TreeStep::Nothing));
            (entry.zxid, entry.time_ms, changes)
        });
        match made == Some((txn.zxid, txn.time_ms, changes(&txn.body))) {
            true => Ok(()),
            false => Err(format!("the model makes {made:x?} of it")),
        }
    }

    /// A write that nobody waits for, through a connection that the model has closed: the member had received it before.
    fn late_write(&mut self, number: usize, xid: i32) -> Result<(), String> {
        let connection = &self.history.connections[number];
        let place = connection.requests.iter().position(|sent| sent.xid == xid);
        let replies = connection.received.iter();
        let replies = replies.filter(|one| matches!(one.frame, Frame::Reply(_)));
        let place = place.filter(|place| replies.count() <= *place);
        let sent =
            &connection.requests[place.ok_or("the model has closed its connection before")?];
        let mut body = BytesMut::new();
        sent.request.encode_body(&mut body);
        let message = Message::Request {
            conn: self.lines[number].id,
            session: self.own_id(connection.granted().unwrap_or_default()),
            xid,
            op: sent.request.number(),
            body: body.freeze(),
        };
        self.model.lead(&mut self.it, connection.member, message);
        Ok(())
    }

    /// Before a write through a member that its session had left: a handshake there, which was not answered, has arrived late.
    fn move_back(&mut self, recorded: i64, member: usize) {
        let session = self.own_id(recorded);
        let known = self.model.sessions.get(&session);
        let has_left = known.is_some_and(|known| !known.is_at(member));
        let lost = lost_handshake(self.history, recorded, member).filter(|_| has_left);
        if let Some(lost) = lost {
            let message = Message::Revalidate {
                conn: ConnId::MAX,
                session,
                timeout_ms: lost.timeout_ms,
            };
            self.model.lead(&mut self.it, member, message);
        }
    }

    /// A write that changes nothing.
    fn nothing(&mut self) {
        let zxid = self.model.next_zxid();
        self.model.head.zxid = zxid;
        self.model
            .propose(&mut self.it, zxid, Vec::new(), None, None, None);
    }

    fn request_of(&self, session: i64, xid: i32) -> Option<(usize, i32)> {
        let connections = self.history.connections.iter().enumerate();
        let mut own = connections.filter(|(_, one)| one.granted() == Some(session));
        own.find(|(_, one)| one.requests.iter().any(|sent| sent.xid == xid))
            .map(|(number, _)| (number, xid))
    }

    fn apply(&mut self, member: usize, write: usize) {
        let upto = write as u64 + 1;
        let is_behind = self.model.members[member].applied < upto;
        if !self.model.members[member].is_serving || !is_behind {
            return;
        }
        if self.model.committed < upto {
            let epoch = self.model.epoch;
            let commit = EnsembleEvent::Commit { epoch, upto };
            self.model.handle(&mut self.it, commit);
        }
        self.model.apply(&mut self.it, member, upto);
    }

    /// A client connects, and sends its handshake.
    fn connect(&mut self, number: usize) {
        let connection = &self.history.connections[number];
        let it = &mut self.it;
        let process = Process(u32::try_from(connection.client).unwrap_or_default() + 1);
        let id = it
            .net
            .connect(&mut it.agenda, it.now, process, connection.member);
        self.lines[number].id = id;
        self.drain();
        let session_id = self.own_id(connection.session);
        let options = ConnectOptions {
            timeout: Duration::from_millis(connection.timeout_ms.unsigned_abs().into()),
            session_id,
            last_zxid_seen: connection.seen,
            ..ConnectOptions::default()
        };
        let bytes = options.encode();
        self.hear(number, connection.at, &bytes);
    }

    fn receive(&mut self, number: usize, place: usize) {
        let sent = &self.history.connections[number].requests[place];
        self.hear(number, sent.at, &sent.request.encode(sent.xid));
    }

    /// A member receives bytes.
    ///
    /// A real server notes the activity of a session when a request arrives, which is after it was sent, and before it is executed. The
    /// model does both in one moment, so the earlier one is set here.
    fn hear(&mut self, number: usize, sent_at: Micros, bytes: &[u8]) {
        let connection = &self.history.connections[number];
        let session = self.own_id(connection.granted().unwrap_or(connection.session));
        let before = self.model.sessions.get(&session).map(|known| known.heard);
        self.sent_at = sent_at;
        let id = self.lines[number].id;
        self.model
            .receive(&mut self.it, connection.member, id, bytes);
        self.drain();
        if let (Some(before), Some(known)) = (before, self.model.sessions.get_mut(&session))
            && known.heard != before
        {
            known.heard = before.max(sent_at / 1_000);
        }
    }

    /// Lets follow what follows at once, and keeps what the schedule has a step for.
    fn drain(&mut self) {
        while let Some(event) = self.it.agenda.take_due(Ms::MAX) {
            let event = match event {
                Event::Server(ServerEvent::Ensemble(event)) => event,
                other => {
                    servers::happen(&mut self.model, &mut self.it, other);
                    continue;
                }
            };
            match event {
                EnsembleEvent::AtLeader {
                    message: Message::Request { conn, xid, .. },
                    ..
                } => {
                    self.up.insert((conn, xid), event);
                }
                EnsembleEvent::Synced { conn, xid, .. } => {
                    self.down.insert((conn, xid), event);
                }
                EnsembleEvent::AtLeader {
                    member,
                    message: Message::Active(ref sessions),
                    ..
                } => {
                    if sessions.iter().all(|id| self.is_reported(member, *id)) {
                        self.model.handle(&mut self.it, event);
                    }
                }
                EnsembleEvent::AtLeader { .. }
                | EnsembleEvent::Ping { .. }
                | EnsembleEvent::Report { .. }
                | EnsembleEvent::Resumes { .. }
                | EnsembleEvent::Revalidated { .. } => self.model.handle(&mut self.it, event),
                // Steps of the schedule.
                EnsembleEvent::Commit { .. }
                | EnsembleEvent::Apply { .. }
                | EnsembleEvent::Reads { .. }
                | EnsembleEvent::Expiry { .. }
                | EnsembleEvent::Elected { .. }
                | EnsembleEvent::Joins { .. }
                | EnsembleEvent::Leaves { .. }
                | EnsembleEvent::StepsDown { .. }
                | EnsembleEvent::Reap => {}
            }
        }
    }

    /// Whether the leader has certainly heard from a member that this session is active. In the half timeout before it expires, the report
    /// may have been too late.
    fn is_reported(&self, member: usize, session: i64) -> bool {
        let recorded = self.recorded.get(&session).copied().unwrap_or_default();
        let timeout = self
            .model
            .sessions
            .get(&session)
            .map_or(0, |known| known.timeout);
        let until = self.sent_at + 1_000 * (timeout / 2);
        let is_deaf = self.history.faults.iter().any(|fault| match *fault {
            Fault::Deaf {
                member: deaf,
                from,
                to,
            } => deaf == member && self.sent_at <= to && from <= until,
            Fault::Killed { .. } => false,
        });
        let ends = self.history.txns.iter().any(|txn| {
            let is_end = matches!(txn.body, TxnBody::CloseSession { .. });
            is_end && txn.session_id == recorded && micros(txn.time_ms) < until
        });
        !is_deaf && !ends
    }

    /// The leader is lost, and another is elected.
    fn elect(&mut self, era: usize) {
        let (epoch, leader) = self.history.leaders[era];
        if let Some(lost) = self.model.leader {
            self.crash(lost);
        }
        // Elections that failed took an epoch too.
        self.model.epoch = epoch;
        let members = self.model.members.iter();
        let up: Vec<usize> = members
            .enumerate()
            .filter(|(_, member)| member.is_up(self.it.now))
            .map(|(index, _)| index)
            .collect();
        self.model.begin_epoch(&mut self.it, leader, &up);
    }

    /// A member is killed, until a step starts it again.
    fn crash(&mut self, server: usize) {
        let time = Ms::MAX / 2;
        let fault = faults::Fault::ServerCrash { server, time };
        self.model.suffer(&mut self.it, fault, 0);
    }
}

/// Whether a write changes the tree.
fn changes(body: &TxnBody) -> bool {
    match body {
        TxnBody::CreateSession { .. } | TxnBody::Error(_) | TxnBody::Check { .. } => false,
        TxnBody::CloseSession { paths } => !paths.is_empty(),
        // The log has the parts before and behind the one that failed.
        TxnBody::Multi(parts) => {
            let has_failed = |part: &TxnBody| matches!(part, TxnBody::Error(_));
            !parts.iter().any(has_failed) && parts.iter().any(changes)
        }
        _ => true,
    }
}

fn ms(time: Duration) -> Ms {
    Ms::try_from(time.as_millis()).unwrap_or(Ms::MAX)
}
