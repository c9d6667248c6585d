//! One session.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lane::Lane;
use crate::client::Peer;

/// Deadline of a session that has ended or is about to: this is final.
const ENDED: i64 = i64::MIN;

/// A session that is open, or was until a moment ago.
///
/// Touch and expiry race on one atomic deadline: the first to change it wins. Once the end is decided, no more requests of the session are
/// accepted.
pub(crate) struct Session {
    pub(crate) id: i64,
    password: [u8; 16],
    timeout_ms: AtomicI32,
    deadline_ms: AtomicI64,
    lane: Mutex<Lane>,
}

impl Session {
    pub(crate) fn new(id: i64, password: [u8; 16], timeout_ms: i32, deadline_ms: i64) -> Self {
        Self {
            id,
            password,
            timeout_ms: AtomicI32::new(timeout_ms),
            deadline_ms: AtomicI64::new(deadline_ms),
            lane: Mutex::default(),
        }
    }

    pub(crate) fn password(&self) -> [u8; 16] {
        self.password
    }

    /// Whether `password` is the session's password, compared in constant time.
    pub(crate) fn has_password(&self, password: &[u8]) -> bool {
        let differences = self.password.iter().zip(password);
        password.len() == self.password.len()
            && differences.fold(0, |seen, (ours, theirs)| seen | (ours ^ theirs)) == 0
    }

    pub(crate) fn timeout_ms(&self) -> i32 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// Sets the timeout negotiated by the current connection. The timeout in the log stays unchanged.
    pub(crate) fn set_timeout_ms(&self, timeout_ms: i32) {
        self.timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    pub(crate) fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane
            .lock()
            .expect("no code panics while it holds a lane")
    }

    /// Detaches `peer` if it is still the current connection. Never panics.
    pub(crate) fn detach(&self, peer: &Arc<Peer>) {
        let lane = self.lane.lock();
        lane.unwrap_or_else(PoisonError::into_inner).detach(peer);
    }

    /// Moves the deadline; false if the session has ended.
    pub(crate) fn touch(&self, deadline_ms: i64) -> bool {
        self.change_deadline(|_| Some(deadline_ms))
    }

    /// Moves a deadline that is due; one moved meanwhile by a touch stays.
    pub(crate) fn defer_if_due(&self, now_ms: i64, until_ms: i64) -> bool {
        self.change_deadline(|deadline_ms| (deadline_ms <= now_ms).then_some(until_ms))
    }

    /// Ends the session if its deadline is due; true for the only caller that ends it.
    pub(crate) fn end_if_due(&self, now_ms: i64) -> bool {
        self.change_deadline(|deadline_ms| (deadline_ms <= now_ms).then_some(ENDED))
    }

    /// Ends the session; true for the only caller that ends it.
    pub(crate) fn end(&self) -> bool {
        self.change_deadline(|_| Some(ENDED))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.deadline_ms() == ENDED
    }

    pub(crate) fn deadline_ms(&self) -> i64 {
        self.deadline_ms.load(Ordering::Acquire)
    }

    fn change_deadline(&self, next: impl Fn(i64) -> Option<i64>) -> bool {
        self.deadline_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |deadline_ms| {
                if deadline_ms == ENDED {
                    None
                } else {
                    next(deadline_ms)
                }
            })
            .is_ok()
    }
}

impl fmt::Debug for Session {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id))
            .finish_non_exhaustive()
    }
}
