//! Faults of members: crashes, pauses and cut links; and recovery from them.

use super::{Ensemble, EnsembleEvent};
use crate::faults::Fault;
use crate::world::{Event, Ms, Parts};

impl Ensemble {
    /// A fault of a member. After [`Fault::ShortSessions`] all members grant sessions of `short`.
    pub(crate) fn suffer(&mut self, it: &mut Parts, fault: Fault, short: Ms) {
        let now = it.now;
        match fault {
            Fault::ServerCrash { server, time } => self.crash(it, server, now + time),
            Fault::ServerPause { server, time } => self.pause(it, server, now + time),
            Fault::ServerCutOff { server, time } => self.cut_off(it, server, now + time),
            Fault::ServerDeaf { server, time } => self.deafen(it, server, now + time),
            Fault::LeaderCrash { time } => {
                if let Some(leader) = self.leader {
                    self.crash(it, leader, now + time);
                }
            }
            Fault::LeaderPause { time } => {
                if let Some(leader) = self.leader {
                    self.pause(it, leader, now + time);
                }
            }
            Fault::LeaderCutOff { time } => {
                if let Some(leader) = self.leader {
                    self.cut_off(it, leader, now + time);
                }
            }
            Fault::ShortSessions { server, time } => {
                for member in &mut self.members {
                    member.timeout_max = Some(short.max(2 * self.settings.tick));
                }
                self.crash(it, server, now + time);
            }
            // Of workers and their links, or of disks.
            _ => {}
        }
    }

    /// A member that was cut off for too long disconnects its clients until it can return.
    pub(super) fn leave(&mut self, it: &mut Parts, index: usize) {
        if self.leader == Some(index) || !self.members[index].is_serving {
            return;
        }
        self.drop_clients(it, index);
        let at = self.members[index].link.open_at() + 1;
        let life = self.members[index].life;
        self.put(
            it,
            at,
            EnsembleEvent::Joins {
                member: index,
                life,
            },
        );
    }

    /// A member returns, with all committed writes.
    pub(super) fn join(&mut self, it: &mut Parts, index: usize) {
        if self.members[index].is_serving {
            return;
        }
        if self.leader.is_none() || !self.members[index].is_up(it.now) {
            // An election includes it, or it retries.
            let life = self.members[index].life;
            let event = EnsembleEvent::Joins {
                member: index,
                life,
            };
            return self.put(it, it.now + 500, event);
        }
        let tree = self.newest();
        let committed = self.committed;
        self.members[index].restart(&tree, committed);
    }

    /// Kills a member until `back_at`. If it leads, the ensemble loses its leader.
    fn crash(&mut self, it: &mut Parts, index: usize, back_at: Ms) {
        self.members[index].back_at = back_at;
        if self.leader == Some(index) {
            return self.fall(it);
        }
        self.drop_clients(it, index);
        let life = self.members[index].life;
        self.put(
            it,
            back_at,
            EnsembleEvent::Joins {
                member: index,
                life,
            },
        );
    }

    /// A member is cut off from the leader; a leader from all others.
    fn cut_off(&mut self, it: &mut Parts, index: usize, until: Ms) {
        if self.leader == Some(index) {
            for member in &mut self.members {
                member.link.up.hold(until);
                member.link.down.hold(until);
            }
            let limit = self.sync_deadline(it.now);
            if until > limit {
                let event = EnsembleEvent::StepsDown { epoch: self.epoch };
                self.put(it, limit, event);
            }
            return;
        }
        self.members[index].link.up.hold(until);
        self.deafen(it, index, until);
    }

    /// A member hears nothing from the leader, and the leader still hears the member. A leader is not affected.
    fn deafen(&mut self, it: &mut Parts, index: usize, until: Ms) {
        if self.leader == Some(index) {
            return;
        }
        self.members[index].link.down.hold(until);
        let limit = self.sync_deadline(it.now);
        if until > limit {
            let life = self.members[index].life;
            let event = EnsembleEvent::Leaves {
                member: index,
                life,
            };
            self.put(it, limit, event);
        }
    }

    /// Whether a leader reaches a quorum: its links may have recovered since they were cut.
    pub(super) fn has_quorum(&self, now: Ms) -> bool {
        let members = self.members.iter().enumerate();
        let reached = members.filter(|(index, member)| {
            self.leader == Some(*index) || (member.is_serving && member.is_up(now))
        });
        reached.count() > self.members.len() / 2
    }

    /// When a member and a leader that lose contact now give each other up.
    fn sync_deadline(&self, now: Ms) -> Ms {
        now + self.settings.sync_limit * self.settings.tick
    }

    /// A member is paused until `until`.
    fn pause(&mut self, it: &mut Parts, index: usize, until: Ms) {
        it.net.pause_server(index, until);
        if self.leader == Some(index) {
            self.leader_paused_until = self.leader_paused_until.max(until);
        }
        self.cut_off(it, index, until);
    }

    /// Faults are over, and members no longer lag.
    pub(crate) fn calm(&mut self, it: &mut Parts) {
        self.settings.lag_max = 0;
        self.settings.stalls = 0;
        self.settings.pace_max = 0;
        self.settings.reap_every = self.settings.reap_every.min(10_000);
        let at = it.now + self.settings.reap_every;
        self.put(it, at, EnsembleEvent::Reap);
        for member in &mut self.members {
            member.lag = 0;
            member.timeout_max = None;
            member.applies_last = it.now;
        }
        // No member lags any more.
        for index in 0..self.members.len() {
            if self.members[index].is_serving {
                let committed = self.committed;
                self.apply(it, index, committed);
            }
        }
        // A server closes a connection that has been silent for its session timeout, also if the session is alive elsewhere (`connectionExpirer` in
        // `NIOServerCnxnFactory`). Its watches end with it.
        let at = it.now + self.settings.timeout_max;
        for conn in it.net.half_open() {
            it.agenda.put(at, Event::HangsUp(conn));
        }
    }
}
