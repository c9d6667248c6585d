//! Fencing of a store outside ZooKeeper.

use std::sync::atomic::{AtomicI64, Ordering};

/// The highest fencing token that a store has seen. It turns away whoever comes with a lower one.
///
/// A holder that was paused past its session timeout does not know that it has lost its hold, and goes on writing when
/// it wakes. It cannot be stopped at its own end; the store can refuse it, because the next holder's token is
/// greater. Keep the highest token *in the store*, and compare and write in one step. In SQL that is
///
/// ```sql
/// UPDATE report SET body = :body, token = :token WHERE name = :name AND token <= :token
/// ```
///
/// and no row changed means that a later holder was here. A `Fence` is the same for a store that is a process: one in
/// front of all its writes, asked under the lock that the write is made under.
///
/// ```
/// use bellwether::Fence;
///
/// let fence = Fence::new();
/// assert!(fence.admit(7).is_ok());
/// assert!(fence.admit(7).is_ok(), "a holder may write many times");
/// assert!(fence.admit(9).is_ok(), "the next holder");
/// assert!(fence.admit(7).is_err(), "the one before wakes up too late");
/// ```
#[derive(Debug)]
pub struct Fence(AtomicI64);

/// A write came with the token of a hold that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale: {highest} was here")]
#[expect(missing_docs, reason = "each field is named in the message")]
pub struct StaleToken {
    pub token: i64,
    pub highest: i64,
}

impl Fence {
    /// A fence that has seen no token.
    #[must_use]
    pub fn new() -> Self {
        Self::at(i64::MIN)
    }

    /// A fence that has seen tokens up to this one, as read back from the store.
    #[must_use]
    pub fn at(highest: i64) -> Self {
        Self(AtomicI64::new(highest))
    }

    /// Admits a write by the holder with this token.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a later holder was admitted before. Do not write.
    pub fn admit(&self, token: i64) -> Result<(), StaleToken> {
        let highest = self.0.fetch_max(token, Ordering::AcqRel);
        if token < highest {
            return Err(StaleToken { token, highest });
        }
        Ok(())
    }

    /// The highest token admitted so far.
    #[must_use]
    pub fn highest(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new()
    }
}
