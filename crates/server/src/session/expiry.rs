//! Session expiry.
//!
//! A session never expires early: its deadline is the first tick boundary more than one timeout after its last message, as in Apache's
//! `ExpiryQueue`. It expires then, or a few ticks later if the server itself was stalled.

use std::sync::Arc;

use super::session::Session;

/// Deadline of a session whose last message arrived at `now_ms`.
pub(super) fn deadline_ms(now_ms: i64, timeout_ms: i32, tick_ms: i64) -> i64 {
    ((now_ms + i64::from(timeout_ms)) / tick_ms + 1) * tick_ms
}

/// Lateness of a sweep that is usual on a busy machine, and no stall, even if it is more than a quarter of a short tick.
const LATE_MS_USUAL: i64 = 10;

/// Number of consecutive late sweeps that expire nothing. If every sweep is late, the machine is slow rather than stalled, and sessions
/// must expire all the same.
const LATE_SWEEPS_MAX: u32 = 3;

/// Finds overdue sessions, once per tick.
#[derive(Debug)]
pub(crate) struct Sweeper {
    tick_ms: i64,
    next_ms: i64,
    late_in_a_row: u32,
}

impl Sweeper {
    pub(crate) fn new(now_ms: i64, tick_ms: i64) -> Self {
        Self {
            tick_ms,
            next_ms: (now_ms / tick_ms + 1) * tick_ms,
            late_in_a_row: 0,
        }
    }

    /// Time of the next sweep.
    pub(crate) fn next_ms(&self) -> i64 {
        self.next_ms
    }

    /// Ends the overdue sessions and returns them.
    pub(crate) fn sweep(&mut self, now_ms: i64, sessions: Vec<Arc<Session>>) -> Vec<Arc<Session>> {
        let stalled = self.was_stalled(now_ms - self.next_ms);
        self.next_ms = (now_ms / self.tick_ms + 1) * self.tick_ms;
        let mut ended = Vec::new();
        for session in sessions {
            let spared = stalled
                || session
                    .request_order()
                    .peer()
                    .is_some_and(|peer| peer.is_paused());
            if spared {
                session.defer_if_due(now_ms, self.next_ms + self.tick_ms);
            } else if session.end_if_due(now_ms) {
                ended.push(session);
            }
        }
        // In the order in which they were opened, not that of a hash table.
        ended.sort_unstable_by_key(|session| session.id);
        ended
    }

    /// Whether the server was stalled, so that a sweep this late must expire nothing. A stalled server has not read its sockets: heartbeats
    /// that arrived meanwhile must be read before a session expires.
    fn was_stalled(&mut self, late_ms: i64) -> bool {
        if late_ms <= (self.tick_ms / 4).max(LATE_MS_USUAL) {
            self.late_in_a_row = 0;
            return false;
        }
        self.late_in_a_row = self.late_in_a_row.saturating_add(1);
        self.late_in_a_row <= LATE_SWEEPS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(timeout_ms: i32, heard_ms: i64) -> Arc<Session> {
        Arc::new(Session::new(
            1,
            timeout_ms,
            deadline_ms(heard_ms, timeout_ms, 100),
        ))
    }

    #[test]
    fn nobody_is_ended_early_and_nobody_a_tick_late() {
        for heard_ms in 0..250 {
            let deadline = deadline_ms(heard_ms, 400, 100);
            assert!(deadline > heard_ms + 400, "heard at {heard_ms}");
            assert!(deadline <= heard_ms + 500, "heard at {heard_ms}");
        }
    }

    #[test]
    fn a_touch_and_an_end_cannot_both_win() {
        let session = session(400, 0);
        assert!(session.end_if_due(500));
        assert!(!session.touch(9_000));
        assert!(!session.end_if_due(9_000));
    }

    #[test]
    fn who_was_just_heard_is_not_deferred_to_an_earlier_time() {
        let session = session(400, 0);
        session.touch(9_000);
        assert!(!session.defer_if_due(500, 700));
        assert_eq!(session.deadline_ms(), 9_000);
    }

    /// Its heartbeat may have arrived in time without being read.
    #[test]
    fn a_stall_of_a_tick_ends_nobody_who_was_heard_before_it() {
        let mut sweeper = Sweeper::new(0, 100);
        let session = session(200, 99);
        assert!(sweeper.sweep(100, vec![session.clone()]).is_empty());
        assert!(sweeper.sweep(301, vec![session.clone()]).is_empty());
        assert!(sweeper.sweep(400, vec![session.clone()]).is_empty());
        assert_eq!(sweeper.sweep(500, vec![session]).len(), 1);
    }

    #[test]
    fn after_a_stall_sockets_are_read_before_anybody_is_ended() {
        let mut sweeper = Sweeper::new(0, 100);
        let silent = session(400, 0);
        assert!(sweeper.sweep(5_000, vec![silent.clone()]).is_empty());
        assert!(sweeper.sweep(5_100, vec![silent.clone()]).is_empty());
        assert_eq!(sweeper.sweep(5_200, vec![silent]).len(), 1);
    }

    #[test]
    fn a_server_that_is_always_late_ends_sessions_too() {
        let mut sweeper = Sweeper::new(0, 100);
        let silent = session(100, 0);
        let mut ended = |now_ms| sweeper.sweep(now_ms, vec![silent.clone()]).len();
        let late_sweeps = [150, 250, 350, 450, 550].map(&mut ended);
        assert_eq!(late_sweeps, [0, 0, 0, 1, 0]);
    }

    #[test]
    fn after_a_punctual_sweep_a_stall_spares_again() {
        let mut sweeper = Sweeper::new(0, 100);
        for now_ms in [150, 250, 350, 450, 500] {
            sweeper.sweep(now_ms, Vec::new());
        }
        assert!(sweeper.sweep(650, vec![session(100, 300)]).is_empty());
    }
}
