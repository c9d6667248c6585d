//! Locks, permits and leaderships behind one interface.

use std::time::Duration;

use bellwether::hold::Previous;
use bellwether::{
    Client, Election, Error, ErrorKind, Hold, Leadership, Lock, LockGuard, MultiGuard, MultiLock,
    Permit, ReadGuard, RwLock, Semaphore, SimpleGuard, SimpleLock, WriteGuard,
};
use rand::Rng as _;
use rand::rngs::StdRng;

pub use crate::recipe::Held;

/// How a contender asks for a hold.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// For as long as it takes.
    Wait,
    /// With a limit.
    Within(Duration),
    /// Without waiting.
    AtOnce,
}

/// Acquires with one of these three calls, of which the first two wait.
macro_rules! ask {
    ($ask:expr, $wait:expr, $within:expr, $at_once:expr, $guard:path) => {
        match $ask {
            Ask::Wait => $wait.await.map(|guard| Some($guard(guard))),
            Ask::Within(limit) => $within(limit).await.map(|guard| Some($guard(guard))),
            Ask::AtOnce => $at_once.await.map(|guard| guard.map($guard)),
        }
    };
}

impl Held {
    /// The sum of weights that can be held at a time. A reader takes one part, and a writer all.
    pub fn capacity(self) -> u32 {
        match self {
            Self::RwLock => 1000,
            Self::Semaphore => 3,
            _ => 1,
        }
    }

    /// A random weight.
    pub fn some_weight(self, random: &mut StdRng) -> u32 {
        match self {
            Self::RwLock if random.random_ratio(1, 3) => self.capacity(),
            Self::Semaphore => random.random_range(1..=self.capacity()),
            _ => 1,
        }
    }

    /// Acquires a hold; `None` if there was none at once or in time.
    pub async fn acquire(
        self,
        client: &Client,
        path: &str,
        ask: Ask,
        weight: u32,
    ) -> Result<Option<Guard>, Error> {
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
                let within = |limit| permits.acquire_many_timeout(weight, limit);
                let at_once = permits.try_acquire_many(weight);
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
                if client.session_id().number() % 2 == 0 {
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
                let within = |limit| election.campaign_timeout(limit);
                ask!(
                    ask,
                    election.campaign(),
                    within,
                    election.try_campaign(),
                    Guard::Leader
                )
            }
        };
        match acquired {
            Err(Error {
                kind: ErrorKind::TimedOut { .. },
                ..
            }) => Ok(None),
            acquired => acquired,
        }
    }
}

/// A guard of any of these recipes.
#[derive(Debug)]
#[expect(missing_docs, reason = "the types say it")]
pub enum Guard {
    Fair(LockGuard),
    Simple(SimpleGuard),
    Leader(Leadership),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
    Multi(MultiGuard),
}

impl Guard {
    /// The fencing token.
    pub fn token(&self) -> i64 {
        self.hold().token().number()
    }

    /// How the previous hold ended.
    pub fn previous(&self) -> &Previous {
        self.hold().previous()
    }

    /// Its share of the capacity.
    pub fn weight(&self) -> u32 {
        match self {
            Self::Write(_) => Held::RwLock.capacity(),
            Self::Permit(permit) => permit.permits(),
            _ => 1,
        }
    }

    /// Resolves when the hold can no longer be relied on.
    pub async fn lost(&self) {
        match self {
            Self::Multi(guard) => guard.lost().await,
            _ => self.hold().lost().await,
        }
    }

    /// Releases the hold.
    pub async fn release(self) -> Result<(), Error> {
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

    /// Of several, the last one acquired.
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
