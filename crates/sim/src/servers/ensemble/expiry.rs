//! The end of sessions that the leader has not heard of for their timeout.

use super::tree::At;
use super::{Ensemble, EnsembleEvent, Session};
use crate::world::{Ms, Parts, server_epoch_ms};

impl Ensemble {
    /// Plans a check of a session for the moment when it may expire.
    pub(super) fn plan_expiry(&mut self, it: &mut Parts, session: i64) {
        let Some(known) = self.sessions.get(&session) else {
            return;
        };
        let at = self.expires_at(known).max(it.now);
        self.look_again(it, session, at);
    }

    fn look_again(&mut self, it: &mut Parts, session: i64, at: Ms) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.planned += 1;
            let planned = known.planned;
            self.put(it, at, EnsembleEvent::Expiry { session, planned });
        }
    }

    fn expires_at(&self, session: &Session) -> Ms {
        let at = session.heard + session.timeout;
        match self.settings.expires_early {
            true => at,
            false => (at / self.settings.tick + 1) * self.settings.tick,
        }
    }

    /// Expires a session, or checks again later.
    pub(super) fn expiry(&mut self, it: &mut Parts, id: i64, planned: u64) {
        let Some(known) = self.sessions.get(&id) else {
            return;
        };
        if known.is_closing || known.planned != planned {
            return;
        }
        if self.leader.is_none() {
            // The next leader plans a check of every session.
            return;
        }
        let at = self.expires_at(known).max(self.leader_paused_until);
        if at > it.now {
            return self.look_again(it, id, at);
        }
        let zxid = self.next_zxid();
        let at = At {
            zxid,
            time_ms: server_epoch_ms(it.now),
        };
        let steps = self.close_steps(at, id);
        self.head.zxid = zxid;
        if let Some(known) = self.sessions.get_mut(&id) {
            known.is_closing = true;
        }
        it.trace.add(it.now, 8, id.unsigned_abs(), || {
            format!("session {id:#x} expires")
        });
        self.propose(it, zxid, steps, None, None, Some(id));
    }
}
