//! What the contenders of a history compete for.

use std::ops::Deref;
use std::time::Duration;

use bellwether::{
    AcquireError, Client, Hold, Lock, LockGuard, ReleaseError, SimpleGuard, SimpleLock,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Lock,
    /// The lock with a crash mark.
    MarkedLock,
    SimpleLock,
}

/// How a contender asks for a hold.
pub(super) enum Ask {
    Wait,
    Within(Duration),
    AtOnce,
}

impl Recipe {
    const ALL: [Self; 3] = [Self::Lock, Self::MarkedLock, Self::SimpleLock];

    /// Reads what `Debug` writes.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|recipe| format!("{recipe:?}") == name)
    }

    /// How much of it can be held at a time.
    pub(super) fn capacity(self) -> u32 {
        match self {
            Self::Lock | Self::MarkedLock | Self::SimpleLock => 1,
        }
    }

    /// Asks for a hold; `None` if there was none at once or in time.
    pub(super) async fn acquire(
        self,
        client: &Client,
        ask: Ask,
    ) -> Result<Option<Guard>, AcquireError> {
        let path = format!("/histories/{self:?}");
        let acquired = match self {
            Self::Lock | Self::MarkedLock => {
                let mut lock = Lock::new(client, path);
                if self == Self::MarkedLock {
                    lock = lock.crash_mark();
                }
                let acquired = match ask {
                    Ask::Wait => lock.acquire().await.map(Some),
                    Ask::Within(limit) => lock.acquire_timeout(limit).await.map(Some),
                    Ask::AtOnce => lock.try_acquire().await,
                };
                acquired.map(|guard| guard.map(Guard::Fair))
            }
            Self::SimpleLock => {
                let lock = SimpleLock::new(client, path);
                let acquired = match ask {
                    Ask::Wait => lock.acquire().await.map(Some),
                    Ask::Within(limit) => lock.acquire_timeout(limit).await.map(Some),
                    Ask::AtOnce => lock.try_acquire().await,
                };
                acquired.map(|guard| guard.map(Guard::Simple))
            }
        };
        match acquired {
            Err(AcquireError::TimedOut { .. }) => Ok(None),
            acquired => acquired,
        }
    }
}

/// A hold of any of them.
pub(super) enum Guard {
    Fair(LockGuard),
    Simple(SimpleGuard),
}

impl Guard {
    /// How much of the capacity it takes.
    pub(super) fn weight(&self) -> u32 {
        match self {
            Self::Fair(_) | Self::Simple(_) => 1,
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Fair(guard) => guard.release().await,
            Self::Simple(guard) => guard.release().await,
        }
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Self::Fair(guard) => guard,
            Self::Simple(guard) => guard,
        }
    }
}
