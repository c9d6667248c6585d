//! An adversarial ensemble: it keeps what ZooKeeper's documentation promises, and nothing more.
//!
//! Promised, and kept: writes have one order; a session's requests take effect and are answered in order; a client's view never goes back,
//! even when it changes servers; an event arrives before any reply that shows its change; only the leader expires a session, and not before
//! its timeout has passed since the leader last heard from it; `sync` brings a follower up to the leader's state at the time of the request.
//!
//! Not promised, and so not kept: members lag, each as far as it may, also the leader behind its own commits, and a `sync` there does not
//! help; a client lands on the member that lags most; a read waits in its server, while writes behind it are forwarded; a write of a connection that its client has given up takes
//! effect after the client has reconnected to the same member; a leader fails with writes in progress, of which some survive; a session
//! expires at the first moment allowed, and its client learns that late; a container is deleted as soon as it is empty. One member is a
//! single server.

mod conn;
mod expiry;
mod leader;
mod member;
mod outage;
#[cfg(test)]
mod real;
mod request;
mod succession;
#[cfg(test)]
mod tests;
mod tree;
mod watches;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Census, Serve};
use crate::world::{ConnId, EnsembleEvent, Event, Message, Ms, Parts, ServerEvent};

use member::Member;
use tree::{Tree, TreeStep};

/// The parameters of an ensemble.
#[derive(Debug, Clone)]
pub struct EnsembleSettings {
    /// Number of members; one is a single server.
    pub members: usize,
    /// The tick, the unit of time: a member reports every half tick.
    pub tick: Ms,
    /// How many ticks a member serves its clients after it was cut off from the leader.
    pub sync_limit: u64,
    /// Latency of a message between members.
    pub link_delay: Range<Ms>,
    /// Maximum lag of a member.
    pub lag_max: Ms,
    /// Percentage of commits that change the lag of a member, and of reads and of a leader's own commits that wait in a queue.
    pub lag_changes: u32,
    /// Percentage of requests before which the thread of their connection stalls.
    pub stalls: u32,
    /// The longest stall.
    pub stall_max: Ms,
    /// Maximum time between two writes that a lagging member makes visible.
    pub pace_max: Ms,
    /// Interval at which empty containers are deleted.
    pub reap_every: Ms,
    /// Duration of an election.
    pub election: Range<Ms>,
    /// Whether sessions expire at the first moment allowed, or else at the end of a tick.
    pub expires_early: bool,
    /// Whether a new leader gives every session its whole timeout, as Apache's does, or continues with what the previous leader knew.
    pub forgives: bool,
    /// Maximum session timeout of all members.
    pub timeout_max: Ms,
    /// Percentage of connections that lead to the member that lags most, whatever address the client has chosen: addresses are host names,
    /// behind which there may be a load balancer.
    pub to_laggard: u32,
}

/// One write, in the total order.
#[derive(Debug)]
struct Entry {
    zxid: i64,
    time_ms: i64,
    steps: Vec<TreeStep>,
    opens: Option<i64>,
    closes: Option<i64>,
    answer: Option<Answer>,
}

/// The client that waits for a write.
#[derive(Debug)]
struct Answer {
    member: usize,
    conn: ConnId,
    session: i64,
    /// Empty if the connection is closed instead.
    frame: Bytes,
    /// Timeout of the session that it opens.
    opened: Option<i64>,
}

/// A session, as the leader knows it.
#[derive(Debug)]
struct Session {
    timeout: Ms,
    /// Timeout in the log, to which a new leader returns.
    opened_with: Ms,
    heard: Ms,
    /// The member through which it may write.
    owner: Option<usize>,
    /// The leader, if its client is or was there and the leader has yet to note it.
    moves_to: Option<usize>,
    is_closing: bool,
    /// Number of planned checks: only the last one counts.
    planned: u64,
}

impl Session {
    /// The leader notes that the session is at this member, if it has yet to.
    fn arrive(&mut self, member: usize) {
        if self.moves_to == Some(member) {
            self.owner = self.moves_to.take();
        }
    }

    /// Whether it may write through a member.
    fn is_at(&self, member: usize) -> bool {
        [self.owner, self.moves_to].contains(&Some(member))
    }
}

/// The ensemble.
#[derive(Debug)]
pub(crate) struct Ensemble {
    settings: EnsembleSettings,
    random: StdRng,
    members: Vec<Member>,
    leader: Option<usize>,
    epoch: i64,
    counter: i64,
    /// The tree with all proposals, on which the leader decides.
    head: Tree,
    /// Proposals, from `base` on.
    log: VecDeque<Entry>,
    base: u64,
    committed: u64,
    last_commit: Ms,
    sessions: BTreeMap<i64, Session>,
    last_session: i64,
    leader_paused_until: Ms,
}

impl Ensemble {
    pub(crate) fn new(settings: EnsembleSettings, seed: u64) -> Self {
        let config = match settings.members {
            1 => String::new(),
            members => (1..=members)
                .map(|id| format!("server.{id}=server{id}:2888:3888:participant\n"))
                .collect(),
        };
        let tree = Tree::new(&config);
        let mut random = StdRng::seed_from_u64(seed);
        let half = settings.tick / 2;
        let members = (0..settings.members)
            .map(|_| Member::new(tree.clone(), random.random_range(0..half.max(1))))
            .collect();
        Self {
            settings,
            random,
            members,
            leader: Some(0),
            epoch: 1,
            counter: 0,
            head: tree,
            log: VecDeque::new(),
            base: 0,
            committed: 0,
            last_commit: 0,
            sessions: BTreeMap::new(),
            last_session: 0,
            leader_paused_until: 0,
        }
    }

    fn is_single(&self) -> bool {
        self.members.len() == 1
    }

    /// Whether a server is late with work of its own, drawn at random.
    fn is_late(&mut self) -> bool {
        self.settings.lag_max > 0 && self.random.random_ratio(self.settings.lag_changes, 100)
    }

    /// The current state, as the leader sees it.
    pub(crate) fn census(&self) -> Census {
        let is_own = |path: &&str| *path != "/" && !path.starts_with("/zookeeper");
        Census {
            nodes: self
                .head
                .paths()
                .filter(is_own)
                .map(str::to_owned)
                .collect(),
            ephemerals: self.head.ephemerals().map(str::to_owned).collect(),
            sessions: self.sessions.len(),
            watches: self.members.iter().map(|member| member.watches.len()).sum(),
        }
    }

    fn put(&self, it: &mut Parts, at: Ms, event: EnsembleEvent) {
        it.agenda
            .put(at, Event::Server(ServerEvent::Ensemble(event)));
    }

    /// When a message from a member reaches the leader.
    fn up_arrival(&mut self, now: Ms, member: usize) -> Ms {
        if self.leader == Some(member) {
            return now.max(self.leader_paused_until);
        }
        let delay = self.random.random_range(self.settings.link_delay.clone());
        let from = now.max(self.leader_paused_until);
        self.members[member].link.up.arrival(from, delay)
    }

    /// When a message from the leader reaches a member.
    fn down_arrival(&mut self, now: Ms, member: usize) -> Ms {
        if self.leader == Some(member) {
            return now.max(self.leader_paused_until);
        }
        let delay = self.random.random_range(self.settings.link_delay.clone());
        self.members[member].link.down.arrival(now, delay)
    }

    fn tell_leader(&mut self, it: &mut Parts, member: usize, message: Message) {
        let at = self.up_arrival(it.now, member);
        let epoch = self.epoch;
        let event = EnsembleEvent::AtLeader {
            epoch,
            member,
            message,
        };
        self.put(it, at, event);
    }

    fn handle(&mut self, it: &mut Parts, event: EnsembleEvent) {
        use EnsembleEvent as E;
        match event {
            E::AtLeader {
                epoch,
                member,
                message,
            } => {
                if epoch == self.epoch && self.leader.is_some() {
                    self.lead(it, member, message);
                }
            }
            E::Commit { epoch, upto } => {
                if epoch == self.epoch && self.leader.is_some() {
                    self.commit(it, upto);
                }
            }
            E::Apply { member, life, upto } => {
                if self.members[member].life == life {
                    self.apply(it, member, upto);
                }
            }
            E::Ping { member, life } => {
                if self.members[member].life == life {
                    self.ping(it, member);
                }
            }
            E::Report { member, life } => {
                if self.members[member].life == life {
                    self.report(it, member);
                }
            }
            E::Revalidated {
                member,
                life,
                conn,
                granted,
            } => {
                if self.members[member].life == life {
                    self.revalidated(it, member, conn, granted);
                }
            }
            E::Synced {
                member,
                life,
                conn,
                xid,
                path,
                upto,
            } => {
                if self.members[member].life == life {
                    self.members[member].syncs.push((upto, conn, xid, path));
                    self.answer_syncs(it, member);
                }
            }
            E::Reads { member, life, conn } => {
                if self.members[member].life == life {
                    self.waited(it, member, conn);
                }
            }
            E::Resumes {
                member,
                life,
                conn,
                session,
                frame,
            } => {
                if self.members[member].life == life {
                    self.resume(it, member, conn, session, frame);
                }
            }
            E::Expiry { session, planned } => self.expiry(it, session, planned),
            E::Reap => self.reap(it),
            E::Elected { epoch } => {
                if epoch == self.epoch && self.leader.is_none() {
                    self.elect(it);
                }
            }
            E::Leaves { member, life } => {
                if self.members[member].life == life && self.members[member].link.open_at() > it.now
                {
                    self.leave(it, member);
                }
            }
            E::Joins { member, life } => {
                if self.members[member].life == life {
                    self.join(it, member);
                }
            }
            E::StepsDown { epoch } => {
                if epoch == self.epoch && self.leader.is_some() && !self.has_quorum(it.now) {
                    self.fall(it);
                }
            }
        }
    }
}

impl Serve for Ensemble {
    fn begin(&mut self, it: &mut Parts) {
        let at = it.now + self.settings.reap_every;
        self.put(it, at, EnsembleEvent::Reap);
    }

    fn accept(&mut self, _: &mut Parts, server: usize, conn: ConnId) -> bool {
        self.accept(server, conn)
    }

    fn receive(&mut self, it: &mut Parts, server: usize, conn: ConnId, bytes: &Bytes) {
        self.receive(it, server, conn, bytes);
    }

    fn hang_up(&mut self, server: usize, conn: ConnId) {
        self.members[server].forget(conn);
    }

    fn handle(&mut self, it: &mut Parts, event: ServerEvent) {
        if let ServerEvent::Ensemble(event) = event {
            self.handle(it, event);
        }
    }
}

fn to_ms(timeout: Ms) -> i32 {
    i32::try_from(timeout).unwrap_or(i32::MAX)
}

fn frozen(frame: BytesMut) -> Bytes {
    frame.freeze()
}
