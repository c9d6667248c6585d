//! What answered requests prove about the life of a session.

use std::time::Duration;

use crate::clock::Moment;

/// Proof of life: when the latest answered requests were *sent*, and the timeout that the servers keep at least.
///
/// A server expires a session no earlier than `timeout` after it last heard from it, so an answer proves that the session lives until
/// `timeout` after the send. A single server proves it with any answer. In an ensemble only the leader expires sessions, and
/// only an answered write has passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// When the latest answered request was sent, of whatever kind.
    pub any: Moment,
    /// When the latest answered write was sent. A write that the leader refused counts: the quorum has seen it.
    pub write: Moment,
    /// The session timeout. Each reconnect negotiates it again, so it may get shorter. It does not get longer than it was when the
    /// session was opened: only that timeout is in the log, and a server that restarts, or the next leader, goes back to it.
    pub timeout: Duration,
}

impl Life {
    pub(crate) fn new(now: Moment, timeout: Duration) -> Self {
        Self {
            any: now,
            write: now,
            timeout,
        }
    }

    pub(crate) fn answered(&mut self, sent: Moment, is_write: bool) {
        self.any = self.any.max(sent);
        if is_write {
            self.write = self.write.max(sent);
        }
    }

    /// When to give the session up: its timeout, and a quarter of it for a server that expires late, have passed in silence.
    pub(crate) fn gone(&self) -> Moment {
        self.any + self.timeout + self.timeout / 4
    }
}
