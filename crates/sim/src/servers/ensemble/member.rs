//! One member: its version of the tree, its position in the log, and its link to the leader.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::{self, EVENT_XID, EVENT_ZXID};
use bellwether_wire::jute::Writer as _;
use bellwether_wire::reply;
use bytes::BytesMut;

use super::conn::{ClientConn, ConnState};
use super::tree::{At, Tree};
use super::watches::Watches;
use super::{Ensemble, EnsembleEvent, Message};
use crate::world::{ConnId, Ms, Parts};

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
    pub(super) link: LeaderLink,
    /// Sessions that were active since the last report.
    active: BTreeSet<i64>,
    is_report_planned: bool,
    /// Offset of the leader's question in each half tick.
    phase: Ms,
    pub(super) syncs: Vec<(u64, ConnId, i32, String)>,
    pub(super) conns: BTreeMap<ConnId, ClientConn>,
    /// Its own maximum session timeout, if it has one.
    pub(super) timeout_max: Option<Ms>,
}

/// Connection to the leader and back.
#[derive(Debug, Default)]
pub(super) struct LeaderLink {
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
}

impl LeaderLink {
    /// When both directions are open.
    pub(super) fn open_at(&self) -> Ms {
        self.up.held_until.max(self.down.held_until)
    }
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
            link: LeaderLink::default(),
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

    /// Starts again with a tree.
    pub(super) fn restart(&mut self, tree: &Tree, applied: u64) {
        self.tree = tree.clone();
        self.applied = applied;
        self.restart_behind();
    }

    /// Starts again with the tree that it has. The connections of its previous life are gone.
    pub(super) fn restart_behind(&mut self) {
        self.life += 1;
        self.is_serving = true;
        self.leads_from = 0;
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
    pub(super) fn push(&mut self, conn: ConnId, write: impl FnOnce(&mut BytesMut)) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            write(&mut conn.out);
        }
    }
}

impl Ensemble {
    /// The member has heard from a session. If it leads, this renews the session.
    pub(super) fn note_activity(&mut self, it: &mut Parts, index: usize, id: ConnId) {
        let member = &mut self.members[index];
        let Some(ConnState::Open(session)) = member.conns.get(&id).map(|conn| conn.state) else {
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
                    .filter(|(_, conn)| conn.state == ConnState::Open(session))
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
