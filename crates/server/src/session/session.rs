//! One session.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::request_order::RequestOrder;
use crate::client::Peer;

/// Deadline of a session that has ended or is about to: this is final.
const ENDED: i64 = i64::MIN;

/// A session that is open, or was until a moment ago.
///
/// Touch and expiry race on one atomic deadline: the first to change it wins. Once the end is decided, no more requests of the session are
/// accepted.
pub(crate) struct Session {
    pub(crate) id: i64,
    /// The user who opened the session over the Unix socket, or `None` for a client of the network. Unknown after a restart, until the session
    /// is resumed.
    owner: OnceLock<Option<u32>>,
    timeout_ms: AtomicI32,
    deadline_ms: AtomicI64,
    order: Mutex<RequestOrder>,
}

impl Session {
    pub(crate) fn new(id: i64, timeout_ms: i32, deadline_ms: i64) -> Self {
        Self {
            id,
            owner: OnceLock::new(),
            timeout_ms: AtomicI32::new(timeout_ms),
            deadline_ms: AtomicI64::new(deadline_ms),
            order: Mutex::default(),
        }
    }

    /// Records the owner, unless one is known, and returns the owner.
    pub(super) fn own(&self, owner: Option<u32>) -> Option<u32> {
        *self.owner.get_or_init(|| owner)
    }

    pub(crate) fn timeout_ms(&self) -> i32 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// Sets the timeout negotiated by the current connection. The timeout in the log stays unchanged.
    pub(crate) fn set_timeout_ms(&self, timeout_ms: i32) {
        self.timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    pub(crate) fn request_order(&self) -> MutexGuard<'_, RequestOrder> {
        self.order
            .lock()
            .expect("no code panics while it holds a request order")
    }

    /// Detaches `peer` if it is still the current connection. Never panics.
    pub(crate) fn detach(&self, peer: &Arc<Peer>) {
        let order = self.order.lock();
        order.unwrap_or_else(PoisonError::into_inner).detach(peer);
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
