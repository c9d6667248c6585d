//! What the contenders of a history compete for.

use std::ops::Deref;
use std::time::Duration;

use bellwether::{
    AcquireError, Client, Election, Hold, Leadership, Lock, LockGuard, ReleaseError, SimpleGuard,
    SimpleLock,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Lock,
    /// The lock with a crash mark.
    MarkedLock,
    SimpleLock,
    Election,
}

/// How a contender asks for a hold.
pub(super) enum Ask {
    Wait,
    Within(Duration),
    AtOnce,
}

impl Recipe {
    const ALL: [Self; 4] = [
        Self::Lock,
        Self::MarkedLock,
        Self::SimpleLock,
        Self::Election,
    ];

    /// Reads what `Debug` writes.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|recipe| format!("{recipe:?}") == name)
    }

    /// How much of it can be held at a time.
    pub(super) fn capacity(self) -> u32 {
        match self {
            Self::Lock | Self::MarkedLock | Self::SimpleLock | Self::Election => 1,
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
            Self::Election => {
                let election = Election::new(client, path);
                let elected = match ask {
                    // Nobody runs only to see whether it leads at once.
                    Ask::Wait | Ask::AtOnce => election.campaign().await,
                    Ask::Within(limit) => election.campaign_timeout(limit).await,
                };
                elected.map(|leadership| Some(Guard::Leader(leadership)))
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
    Leader(Leadership),
}

impl Guard {
    /// How much of the capacity it takes.
    pub(super) fn weight(&self) -> u32 {
        match self {
            Self::Fair(_) | Self::Simple(_) | Self::Leader(_) => 1,
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Fair(guard) => guard.release().await,
            Self::Simple(guard) => guard.release().await,
            Self::Leader(leadership) => leadership.resign().await,
        }
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Self::Fair(guard) => guard,
            Self::Simple(guard) => guard,
            Self::Leader(leadership) => leadership,
        }
    }
}
