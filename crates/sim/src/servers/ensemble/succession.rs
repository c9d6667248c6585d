//! Loss and election of the leader.

use rand::Rng as _;

use super::tree::{At, Tree};
use super::{Ensemble, EnsembleEvent};
use crate::world::Parts;

impl Ensemble {
    /// The leader is lost. Proposals that no quorum has acknowledged survive or not, at random.
    pub(crate) fn fall(&mut self, it: &mut Parts) {
        if self.leader.take().is_none() {
            return;
        }
        for member in 0..self.members.len() {
            self.drop_clients(it, member);
        }
        let proposed = self.base + self.log.len() as u64;
        let kept = self.random.random_range(self.committed..=proposed);
        while self.base + self.log.len() as u64 > kept {
            let lost = self.log.pop_back().expect("it has that many");
            if let Some(id) = lost.opens {
                self.sessions.remove(&id);
            }
            if let Some(known) = lost.closes.and_then(|id| self.sessions.get_mut(&id)) {
                known.is_closing = false;
            }
        }
        self.committed = kept;
        self.epoch += 1;
        // A single server goes on counting: there was no election.
        if !self.is_single() {
            self.counter = 0;
        }
        self.leader_paused_until = 0;
        let at = it.now + self.random.random_range(self.settings.election.clone());
        let event = EnsembleEvent::Elected { epoch: self.epoch };
        self.put(it, at, event);
    }

    /// Elects a leader, if a quorum is up. It has every surviving write. A follower serves what it had applied, and applies the rest as late as
    /// other commits (`Learner.syncWithLeader` starts the server first).
    pub(super) fn elect(&mut self, it: &mut Parts) {
        let up: Vec<usize> = (0..self.members.len())
            .filter(|index| self.members[*index].is_up(it.now))
            .collect();
        if up.len() <= self.members.len() / 2 {
            let event = EnsembleEvent::Elected { epoch: self.epoch };
            return self.put(it, it.now + 500, event);
        }
        let leader = up[self.random.random_range(0..up.len())];
        self.begin_epoch(it, leader, &up);
    }

    /// A member begins to lead those that are up.
    pub(super) fn begin_epoch(&mut self, it: &mut Parts, leader: usize, up: &[usize]) {
        self.leader = Some(leader);
        self.last_commit = it.now;
        self.head = self.newest();
        // Sessions whose close has survived.
        for entry in &self.log {
            if let Some(id) = entry.closes {
                self.sessions.remove(&id);
            }
        }
        let (tree, committed) = (self.head.clone(), self.committed);
        for &index in up {
            let member = &mut self.members[index];
            if index == leader || member.applied < self.base {
                member.restart(&tree, committed);
                continue;
            }
            let at = it.now + member.lag;
            member.applies_last = at;
            member.restart_behind();
            let apply = EnsembleEvent::Apply {
                member: index,
                life: member.life,
                upto: committed,
            };
            self.put(it, at, apply);
        }
        // Followers continue to show the last write (Leader.startZkServer).
        if !self.is_single() {
            self.members[leader].leads_from = self.epoch << 32;
        }
        self.trim();
        let ids: Vec<i64> = self.sessions.keys().copied().collect();
        for id in ids {
            if let Some(known) = self.sessions.get_mut(&id) {
                known.owner = None;
                known.moves_to = None;
                known.timeout = known.opened_with;
                if self.settings.forgives {
                    known.heard = it.now;
                }
            }
            self.plan_expiry(it, id);
        }
    }

    /// The tree with all committed writes.
    pub(super) fn newest(&self) -> Tree {
        let member = self
            .members
            .iter()
            .filter(|member| member.applied >= self.base)
            .max_by_key(|member| member.applied)
            .expect("entries stay in the log until a member has applied them");
        let mut tree = member.tree.clone();
        for index in member.applied..self.committed {
            let entry = &self.log[usize::try_from(index - self.base).expect("it is there")];
            let at = At {
                zxid: entry.zxid,
                time_ms: entry.time_ms,
            };
            for step in &entry.steps {
                tree.apply(at, step);
            }
            tree.zxid = entry.zxid;
        }
        tree
    }
}
