//! What the contenders of a history compete for.

use std::time::Duration;

use bellwether::{
    AcquireError, Client, Election, Hold, Leadership, Lock, LockGuard, MultiGuard, MultiLock,
    Permit, Previous, ReadGuard, ReleaseError, RwLock, Semaphore, SimpleGuard, SimpleLock,
    WriteGuard,
};
use rand::Rng as _;
use rand::rngs::StdRng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Lock,
    /// The lock with a crash mark.
    MarkedLock,
    SimpleLock,
    Election,
    RwLock,
    Semaphore,
    /// Two locks at once, in whatever order.
    MultiLock,
}

/// How a contender asks for a hold.
pub(super) enum Ask {
    Wait,
    Within(Duration),
    AtOnce,
}

/// Asks for what these three calls give, the first two of which wait.
macro_rules! ask {
    ($ask:expr, $wait:expr, $within:expr, $at_once:expr, $guard:path) => {
        match $ask {
            Ask::Wait => $wait.await.map(|guard| Some($guard(guard))),
            Ask::Within(limit) => $within(limit).await.map(|guard| Some($guard(guard))),
            Ask::AtOnce => $at_once.await.map(|guard| guard.map($guard)),
        }
    };
}

impl Recipe {
    const ALL: [Self; 7] = [
        Self::Lock,
        Self::MarkedLock,
        Self::SimpleLock,
        Self::Election,
        Self::RwLock,
        Self::Semaphore,
        Self::MultiLock,
    ];

    /// Reads what `Debug` writes.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|recipe| format!("{recipe:?}") == name)
    }

    /// How much of it can be held at a time. A reader takes one part, and a writer all.
    pub(super) fn capacity(self) -> u32 {
        match self {
            Self::RwLock => 1000,
            Self::Semaphore => 3,
            _ => 1,
        }
    }

    /// How much one of them might want.
    pub(super) fn some_weight(self, random: &mut StdRng) -> u32 {
        match self {
            Self::RwLock if random.random_ratio(1, 3) => self.capacity(),
            Self::Semaphore => random.random_range(1..=self.capacity()),
            _ => 1,
        }
    }

    /// Asks for a hold; `None` if there was none at once or in time.
    pub(super) async fn acquire(
        self,
        client: &Client,
        ask: Ask,
        weight: u32,
    ) -> Result<Option<Guard>, AcquireError> {
        let path = format!("/histories/{self:?}");
        let acquired = match self {
            Self::Lock | Self::MarkedLock => {
                let mut lock = Lock::new(client, path);
                if self == Self::MarkedLock {
                    lock = lock.crash_mark();
                }
                let within = |limit| lock.acquire_timeout(limit);
                ask!(ask, lock.acquire(), within, lock.try_acquire(), Guard::Fair)
            }
            Self::SimpleLock => {
                let lock = SimpleLock::new(client, path);
                let within = |limit| lock.acquire_timeout(limit);
                ask!(
                    ask,
                    lock.acquire(),
                    within,
                    lock.try_acquire(),
                    Guard::Simple
                )
            }
            Self::RwLock if weight == 1 => {
                let lock = RwLock::new(client, path);
                let within = |limit| lock.read_timeout(limit);
                ask!(ask, lock.read(), within, lock.try_read(), Guard::Read)
            }
            Self::RwLock => {
                let lock = RwLock::new(client, path);
                let within = |limit| lock.write_timeout(limit);
                ask!(ask, lock.write(), within, lock.try_write(), Guard::Write)
            }
            Self::Semaphore => {
                let permits = Semaphore::new(client, path, self.capacity());
                let within = |limit| permits.acquire_timeout(weight, limit);
                let at_once = permits.try_acquire(weight);
                ask!(
                    ask,
                    permits.acquire_many(weight),
                    within,
                    at_once,
                    Guard::Permit
                )
            }
            Self::MultiLock => {
                let mut paths = ["x", "y"].map(|name| format!("{path}/{name}"));
                if client.session_id() % 2 == 0 {
                    paths.reverse();
                }
                let locks = MultiLock::new(paths.map(|path| Lock::new(client, path)));
                let within = |limit| locks.acquire_timeout(limit);
                ask!(
                    ask,
                    locks.acquire(),
                    within,
                    locks.try_acquire(),
                    Guard::Multi
                )
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
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
    Multi(MultiGuard),
}

impl Guard {
    pub(super) fn token(&self) -> i64 {
        self.hold().token()
    }

    pub(super) fn previous(&self) -> &Previous {
        self.hold().previous()
    }

    /// How much of the capacity it takes.
    pub(super) fn weight(&self) -> u32 {
        match self {
            Self::Write(_) => Recipe::RwLock.capacity(),
            Self::Permit(permit) => permit.permits(),
            _ => 1,
        }
    }

    pub(super) async fn lost(&self) {
        match self {
            Self::Multi(guard) => guard.lost().await,
            _ => self.hold().lost().await,
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Fair(guard) => guard.release().await,
            Self::Simple(guard) => guard.release().await,
            Self::Leader(leadership) => leadership.resign().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Multi(guard) => guard.release().await,
        }
    }

    /// Of several, the one that is taken last.
    fn hold(&self) -> &Hold {
        match self {
            Self::Fair(guard) => guard,
            Self::Simple(guard) => guard,
            Self::Leader(leadership) => leadership,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(permit) => permit,
            Self::Multi(guard) => &guard.guards()[1],
        }
    }
}
