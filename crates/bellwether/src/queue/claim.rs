//! The guard of a taken item.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use crate::hold::Hold;
use crate::queue::error::SettleError;
use crate::queue::held::{End, Held};
use crate::queue::order::{ItemId, to_ms};

/// A hold on an item of a queue; what it promises is told at [`Hold`]. The item stays on the servers until it is
/// [acknowledged](Self::ack).
///
/// Dropped, the claim is taken back in the background and the item is delivered again; so it is when the session ends. Either
/// counts as an attempt.
#[derive(Debug)]
#[must_use = "the item is delivered again when the claim is dropped"]
pub struct Claim<T> {
    held: Held,
    payload: T,
}

impl<T> Claim<T> {
    pub(crate) fn new(held: Held, payload: T) -> Self {
        Self { held, payload }
    }

    /// What is in the item.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Which item it is: what its put returned.
    #[must_use]
    pub fn id(&self) -> ItemId {
        self.held.item().id()
    }

    /// How often the item has been delivered, this time among them.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.held.attempts()
    }

    /// How long ago the item was put, by the clocks of the servers then and of this machine now.
    #[must_use]
    pub fn age(&self) -> Duration {
        age(self.held.put_ms())
    }

    /// Removes the item for good and waits for the server's acknowledgement, over any number of reconnects. It succeeds only
    /// while nobody else has claimed the item.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is removed or will be delivered again.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn ack(self) -> Result<(), SettleError> {
        self.held.settle(&End::Delete).await
    }

    /// Gives the item back at its old place, for another attempt; the reason, or the first 4 KiB of it, is kept if this was
    /// the last one, and the item a dead letter.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item has been or will be given back, perhaps without the reason.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn give_back(self, reason: &str) -> Result<(), SettleError> {
        let end = self.held.failed(reason);
        self.held.settle(&end).await
    }

    /// Makes the item a dead letter at once: it will never succeed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is a dead letter or will be delivered again.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn reject(self, reason: &str) -> Result<(), SettleError> {
        let end = self.held.given_up(reason);
        self.held.settle(&end).await
    }
}

impl<T> Deref for Claim<T> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.held.hold()
    }
}

/// How long ago that was.
pub(crate) fn age(put_ms: i64) -> Duration {
    let now = to_ms(SystemTime::now());
    Duration::from_millis(now.saturating_sub(u64::try_from(put_ms).unwrap_or(0)))
}
