//! The decisions of the leader.

use bellwether_wire::code::ErrorCode;
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::multi::{self, Ops, WriteOp};
use bellwether_wire::op::Op;
use bellwether_wire::reply;
use bellwether_wire::request::{Create, PathVersion, SetData};
use bytes::{Bytes, BytesMut};
use rand::Rng as _;
use rand::seq::SliceRandom as _;

use super::member::Member;
use super::tree::{At, Tree, TreeStep};
use super::{Answer, Ensemble, EnsembleEvent, Entry, Message, Session, frozen, to_ms};
use crate::world::{ConnId, Ms, Parts, server_epoch_ms};

impl Ensemble {
    /// The leader handles a message from a member.
    pub(super) fn lead(&mut self, it: &mut Parts, member: usize, message: Message) {
        match message {
            Message::Open { conn, timeout_ms } => self.open(it, member, conn, timeout_ms),
            Message::Revalidate {
                conn,
                session,
                timeout_ms,
            } => {
                let granted = match self.sessions.get_mut(&session) {
                    Some(known) if !known.is_closing => {
                        // The leader greets its own clients before it notes where they are (LeaderZooKeeperServer.revalidateSession), so that a
                        // write through another member may overtake, the one that they have left or the next one.
                        match self.leader == Some(member) {
                            true => known.moves_to = Some(member),
                            false => known.owner = Some(member),
                        }
                        known.heard = it.now;
                        known.timeout = Ms::from(timeout_ms.unsigned_abs());
                        Some((session, timeout_ms))
                    }
                    _ => None,
                };
                // A shorter timeout may end before the planned check.
                self.plan_expiry(it, session);
                let at = self.down_arrival(it.now, member);
                let life = self.members[member].life;
                let event = EnsembleEvent::Revalidated {
                    member,
                    life,
                    conn,
                    granted,
                };
                self.put(it, at, event);
            }
            Message::Request {
                conn,
                session,
                xid,
                op,
                body,
            } => self.write(it, member, (conn, session), xid, op, &body),
            Message::Sync {
                conn,
                session,
                xid,
                path,
            } => {
                let upto = match self.leader == Some(member) {
                    // On the leader itself a sync is like a read: it waits for the writes of its own session only
                    // (CommitProcessor.needCommit).
                    true => self.proposed_by(session),
                    false => self.base + self.log.len() as u64,
                };
                let at = self.down_arrival(it.now, member);
                let life = self.members[member].life;
                let event = EnsembleEvent::Synced {
                    member,
                    life,
                    conn,
                    xid,
                    path,
                    upto,
                };
                self.put(it, at, event);
            }
            Message::Active(sessions) => {
                for session in sessions {
                    if let Some(known) = self.sessions.get_mut(&session) {
                        known.heard = it.now;
                    }
                }
            }
        }
    }

    fn open(&mut self, it: &mut Parts, member: usize, conn: ConnId, timeout_ms: i32) {
        self.last_session += 1;
        let id = (1 << 56) | (self.last_session << 8) | i64::try_from(member).unwrap_or_default();
        let timeout = Ms::from(timeout_ms.unsigned_abs());
        self.sessions.insert(
            id,
            Session {
                timeout,
                opened_with: timeout,
                heard: it.now,
                owner: Some(member),
                moves_to: None,
                is_closing: false,
                planned: 0,
            },
        );
        self.plan_expiry(it, id);
        let zxid = self.next_zxid();
        self.head.zxid = zxid;
        let answer = Answer {
            member,
            conn,
            session: id,
            frame: Bytes::new(),
            opened: Some(id),
        };
        self.propose(it, zxid, Vec::new(), Some(answer), Some(id), None);
    }

    fn write(
        &mut self,
        it: &mut Parts,
        member: usize,
        (conn, session): (ConnId, i64),
        xid: i32,
        op: i32,
        body: &[u8],
    ) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.arrive(member);
        }
        let state = self.sessions.get(&session);
        if state.is_some_and(|state| !state.is_closing && !state.is_at(member)) {
            return self.moved(it, member, conn);
        }
        let is_open = state.is_some_and(|state| !state.is_closing);
        let zxid = self.next_zxid();
        let at = At {
            zxid,
            time_ms: server_epoch_ms(it.now),
        };
        let before = self.head.zxid;
        let mut frame = BytesMut::new();
        let mut closes = None;
        let steps = if !is_open {
            reply::put(
                &mut frame,
                xid,
                zxid,
                Err(ErrorCode::SessionExpired),
                |_| {},
            );
            Vec::new()
        } else {
            match Op::from_number(op) {
                Some(Op::Multi) => self.multi(at, session, xid, body, &mut frame),
                Some(Op::CloseSession) => {
                    closes = Some(session);
                    reply::put(&mut frame, xid, zxid, Ok(()), |_| {});
                    self.close_steps(at, session)
                }
                Some(op) => match self.single(at, session, op, body) {
                    Ok(step) => {
                        let tree = &self.head;
                        reply::put(&mut frame, xid, zxid, Ok(()), |out| {
                            put_result(out, op, &step, tree);
                        });
                        vec![step]
                    }
                    Err(code) => {
                        reply::put(&mut frame, xid, zxid, Err(code), |_| {});
                        Vec::new()
                    }
                },
                None => return,
            }
        };
        debug_assert!(self.head.zxid >= before, "zxids go forward");
        self.head.zxid = zxid;
        if let Some(state) = closes.and_then(|id| self.sessions.get_mut(&id)) {
            state.is_closing = true;
        }
        let answer = Answer {
            member,
            conn,
            session,
            frame: frozen(frame),
            opened: None,
        };
        self.propose(it, zxid, steps, Some(answer), None, closes);
    }

    /// A request came through another member than the last one that the leader knows for the session (SessionMovedException). Its member
    /// closes the connection: it may be the present one for the client, if the leader learned of an earlier one later (ZOOKEEPER-710).
    /// Through the same member, writes of an earlier connection still take effect.
    pub(super) fn moved(&mut self, it: &mut Parts, member: usize, conn: ConnId) {
        let zxid = self.next_zxid();
        self.head.zxid = zxid;
        let answer = Answer {
            member,
            conn,
            session: 0,
            frame: Bytes::new(),
            opened: None,
        };
        self.propose(it, zxid, Vec::new(), Some(answer), None, None);
    }

    fn single(&mut self, at: At, session: i64, op: Op, body: &[u8]) -> Result<TreeStep, ErrorCode> {
        let mut body = Reader::new(body);
        let write = match op {
            Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
                WriteOp::Create(op, Create::decode(op, &mut body)?)
            }
            Op::Delete => WriteOp::Delete(PathVersion::decode(&mut body)?),
            Op::SetData => WriteOp::SetData(SetData::decode(&mut body)?),
            Op::Check => WriteOp::Check(PathVersion::decode(&mut body)?),
            _ => return Err(ErrorCode::Unimplemented),
        };
        let step = self.head.prepare(&write, session)?;
        self.head.apply(at, &step);
        Ok(step)
    }

    fn multi(
        &mut self,
        at: At,
        session: i64,
        xid: i32,
        body: &[u8],
        frame: &mut BytesMut,
    ) -> Vec<TreeStep> {
        let ops = match Ops::decode(&mut Reader::new(body)) {
            Ok(Ops::Writes(ops)) => ops,
            Ok(Ops::Empty) => Vec::new(),
            _ => {
                let code = ErrorCode::MarshallingError;
                reply::put(frame, xid, at.zxid, Err(code), |_| {});
                return Vec::new();
            }
        };
        let zxid_before = self.head.zxid;
        let (mut steps, mut undo) = (Vec::new(), Vec::new());
        let mut results = BytesMut::new();
        for (index, op) in ops.iter().enumerate() {
            match self.head.prepare(op, session) {
                Ok(step) => {
                    undo.extend(self.head.before(&step));
                    self.head.apply(at, &step);
                    let kind = match op {
                        WriteOp::Create(kind, create) => match (kind, create.flags) {
                            (Op::Create, 0..=3) => Op::Create,
                            _ => Op::Create2,
                        },
                        WriteOp::Delete(_) => Op::Delete,
                        WriteOp::SetData(_) => Op::SetData,
                        WriteOp::Check(_) => Op::Check,
                    };
                    multi::put_success(&mut results, kind);
                    put_result(&mut results, kind, &step, &self.head);
                    steps.push(step);
                }
                Err(code) => {
                    self.head.undo(zxid_before, undo);
                    results.clear();
                    for _ in 0..index {
                        multi::put_failure(&mut results, Ok(()));
                    }
                    multi::put_failure(&mut results, Err(code));
                    for _ in index + 1..ops.len() {
                        let rest = Err(ErrorCode::RuntimeInconsistency);
                        multi::put_failure(&mut results, rest);
                    }
                    steps.clear();
                    break;
                }
            }
        }
        multi::put_end(&mut results);
        reply::put(frame, xid, at.zxid, Ok(()), |out| out.unsplit(results));
        steps
    }

    /// Deletes the ephemeral nodes of a session, in any order: that of a hash table in Apache's server.
    pub(super) fn close_steps(&mut self, at: At, session: i64) -> Vec<TreeStep> {
        let mut own = self.head.ephemerals_of(session);
        own.shuffle(&mut self.random);
        let steps: Vec<TreeStep> = own.into_iter().map(TreeStep::Delete).collect();
        for step in &steps {
            self.head.apply(at, step);
        }
        steps
    }

    pub(super) fn next_zxid(&mut self) -> i64 {
        self.counter += 1;
        match self.is_single() {
            true => self.counter,
            false => (self.epoch << 32) | self.counter,
        }
    }

    pub(super) fn propose(
        &mut self,
        it: &mut Parts,
        zxid: i64,
        steps: Vec<TreeStep>,
        answer: Option<Answer>,
        opens: Option<i64>,
        closes: Option<i64>,
    ) {
        self.log.push_back(Entry {
            zxid,
            time_ms: server_epoch_ms(it.now),
            steps,
            opens,
            closes,
            answer,
        });
        let upto = self.base + self.log.len() as u64;
        let at = self.quorum_at(it.now);
        self.last_commit = self.last_commit.max(at);
        let event = EnsembleEvent::Commit {
            epoch: self.epoch,
            upto,
        };
        self.put(it, self.last_commit, event);
    }

    /// When a quorum has acknowledged a proposal made now.
    fn quorum_at(&mut self, now: Ms) -> Ms {
        let others = self.members.len() / 2;
        let leader = self.leader;
        let mut acks: Vec<Ms> = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            if Some(index) != leader {
                let delay = self.random.random_range(self.settings.link_delay.clone());
                let from = match member.is_serving {
                    true => now.max(member.link.open_at()),
                    // A member that is down may return before another leader is elected; until then it counts as held.
                    false => now.max(member.link.open_at()).max(member.back_at),
                };
                acks.push(from + 2 * delay);
            }
        }
        acks.sort_unstable();
        match others {
            0 => now + self.random.random_range(self.settings.link_delay.clone()),
            others => acks[others - 1],
        }
    }

    /// A quorum has acknowledged everything up to `upto`: the leader sends the commits to the members.
    pub(super) fn commit(&mut self, it: &mut Parts, upto: u64) {
        self.committed = self.committed.max(upto);
        for member in 0..self.members.len() {
            if !self.members[member].is_serving {
                continue;
            }
            if self.leader == Some(member) {
                self.commit_here(it, member, upto);
                continue;
            }
            let lag_max = self.settings.lag_max;
            if lag_max > 0 && self.random.random_ratio(self.settings.lag_changes, 100) {
                // Mostly a little, sometimes the maximum.
                self.members[member].lag = match self.random.random_range(0..4) {
                    0 => lag_max,
                    1 => self.random.random_range(0..=lag_max),
                    _ => 0,
                };
            }
            let arrival = self.down_arrival(it.now, member);
            let pace = self.random.random_range(0..=self.settings.pace_max);
            let Member {
                applies_last, lag, ..
            } = self.members[member];
            let paced = (applies_last + pace).min(arrival + lag_max);
            let at = (arrival + lag).max(applies_last).max(paced);
            self.members[member].applies_last = at;
            let life = self.members[member].life;
            self.put(it, at, EnsembleEvent::Apply { member, life, upto });
        }
        self.trim();
    }

    /// The leader makes commits visible itself, sometimes later than its followers: it sends them first (`Leader.commit`).
    fn commit_here(&mut self, it: &mut Parts, leader: usize, upto: u64) {
        let delay = match self.is_late() {
            true => self.random.random_range(self.settings.link_delay.clone()),
            false => 0,
        };
        let at = (it.now + delay).max(self.members[leader].applies_last);
        if at == it.now {
            return self.apply(it, leader, upto);
        }
        self.members[leader].applies_last = at;
        let life = self.members[leader].life;
        let member = leader;
        self.put(it, at, EnsembleEvent::Apply { member, life, upto });
    }

    /// Length of the log up to the last proposal of a session.
    fn proposed_by(&self, session: i64) -> u64 {
        let is_own = |entry: &Entry| {
            let answer = entry.answer.as_ref();
            answer.is_some_and(|answer| answer.session == session)
        };
        let last = self.log.iter().rposition(is_own);
        last.map_or(0, |place| self.base + place as u64 + 1)
    }

    /// Removes entries that every member has applied.
    pub(super) fn trim(&mut self) {
        let serving = self.members.iter().filter(|member| member.is_serving);
        let done = serving.map(|member| member.applied).min().unwrap_or(0);
        while self.base < done.min(self.committed) {
            self.log.pop_front();
            self.base += 1;
        }
    }

    /// Deletes containers that are empty.
    pub(super) fn reap(&mut self, it: &mut Parts) {
        if self.leader.is_some() && self.leader_paused_until <= it.now {
            for path in self.head.reapable() {
                let zxid = self.next_zxid();
                let at = At {
                    zxid,
                    time_ms: server_epoch_ms(it.now),
                };
                let step = TreeStep::Delete(path);
                self.head.apply(at, &step);
                self.propose(it, zxid, vec![step], None, None, None);
            }
        }
        let at = it.now + self.settings.reap_every;
        self.put(it, at, EnsembleEvent::Reap);
    }

    /// The timeout that a member grants.
    pub(super) fn grant(&self, member: usize, asked_ms: i32) -> i32 {
        let asked = Ms::try_from(asked_ms).unwrap_or(0);
        let most = self.members[member]
            .timeout_max
            .unwrap_or(self.settings.timeout_max);
        to_ms(asked.clamp((2 * self.settings.tick).min(most), most))
    }
}

/// Appends the result of a successful write.
fn put_result(out: &mut BytesMut, op: Op, step: &TreeStep, tree: &Tree) {
    let (path, with_path, with_stat) = match step {
        TreeStep::Create(path, ..) => (path, true, op != Op::Create),
        TreeStep::Set(path, _) => (path, false, true),
        _ => return,
    };
    if with_path {
        out.put_ustring(path);
    }
    if with_stat && let Ok(node) = tree.get(path) {
        node.stat().encode(out);
    }
}
