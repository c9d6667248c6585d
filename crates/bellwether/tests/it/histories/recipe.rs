//! What contenders compete for, and what they get.

use std::time::Duration;

use bellwether::{
    AcquireError, Client, Hold, Lock, LockGuard, MultiGuard, MultiLock, Permit, Previous,
    ReadGuard, ReleaseError, RwLock, Semaphore, SimpleGuard, SimpleLock, WriteGuard,
};
use rand::Rng as _;
use rand::rngs::StdRng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Lock,
    /// The lock with a crash mark.
    MarkedLock,
    SimpleLock,
    RwLock,
    Semaphore,
    /// Two locks at once, in whatever order.
    MultiLock,
}

impl Recipe {
    pub(super) const ALL: [Self; 6] = [
        Self::Lock,
        Self::MarkedLock,
        Self::SimpleLock,
        Self::RwLock,
        Self::Semaphore,
        Self::MultiLock,
    ];

    /// How much there is to hold. A reader takes one part, and a writer all.
    pub(super) fn capacity(self) -> u32 {
        match self {
            Self::Lock | Self::MarkedLock | Self::SimpleLock | Self::MultiLock => 1,
            Self::RwLock => 1000,
            Self::Semaphore => 3,
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

    /// Waits for a hold.
    pub(super) async fn acquire(self, client: &Client, weight: u32) -> Result<Guard, AcquireError> {
        Ok(match self {
            Self::SimpleLock => Guard::Simple(self.simple_lock(client).acquire().await?),
            Self::RwLock if weight == 1 => Guard::Read(self.rwlock(client).read().await?),
            Self::RwLock => Guard::Write(self.rwlock(client).write().await?),
            Self::Semaphore => {
                let semaphore = self.semaphore(client);
                Guard::Permit(semaphore.acquire_many(weight).await?)
            }
            Self::MultiLock => Guard::Multi(self.multi_lock(client).acquire().await?),
            Self::Lock | Self::MarkedLock => Guard::Fair(self.lock(client).acquire().await?),
        })
    }

    pub(super) async fn acquire_timeout(
        self,
        client: &Client,
        weight: u32,
        limit: Duration,
    ) -> Result<Guard, AcquireError> {
        Ok(match self {
            Self::SimpleLock => {
                let lock = self.simple_lock(client);
                Guard::Simple(lock.acquire_timeout(limit).await?)
            }
            Self::RwLock if weight == 1 => {
                let lock = self.rwlock(client);
                Guard::Read(lock.read_timeout(limit).await?)
            }
            Self::RwLock => {
                let lock = self.rwlock(client);
                Guard::Write(lock.write_timeout(limit).await?)
            }
            Self::Semaphore => {
                let semaphore = self.semaphore(client);
                Guard::Permit(semaphore.acquire_timeout(weight, limit).await?)
            }
            Self::MultiLock => {
                let locks = self.multi_lock(client);
                Guard::Multi(locks.acquire_timeout(limit).await?)
            }
            Self::Lock | Self::MarkedLock => {
                let lock = self.lock(client);
                Guard::Fair(lock.acquire_timeout(limit).await?)
            }
        })
    }

    pub(super) async fn try_acquire(
        self,
        client: &Client,
        weight: u32,
    ) -> Result<Option<Guard>, AcquireError> {
        Ok(match self {
            Self::SimpleLock => {
                let lock = self.simple_lock(client);
                lock.try_acquire().await?.map(Guard::Simple)
            }
            Self::RwLock if weight == 1 => self.rwlock(client).try_read().await?.map(Guard::Read),
            Self::RwLock => self.rwlock(client).try_write().await?.map(Guard::Write),
            Self::Semaphore => {
                let semaphore = self.semaphore(client);
                semaphore.try_acquire(weight).await?.map(Guard::Permit)
            }
            Self::MultiLock => self
                .multi_lock(client)
                .try_acquire()
                .await?
                .map(Guard::Multi),
            Self::Lock | Self::MarkedLock => {
                self.lock(client).try_acquire().await?.map(Guard::Fair)
            }
        })
    }

    fn path(self) -> String {
        format!("/histories/{self:?}")
    }

    fn lock(self, client: &Client) -> Lock {
        let lock = Lock::new(client, self.path());
        match self {
            Self::MarkedLock => lock.crash_mark(),
            _ => lock,
        }
    }

    fn simple_lock(self, client: &Client) -> SimpleLock {
        SimpleLock::new(client, self.path())
    }

    fn rwlock(self, client: &Client) -> RwLock {
        RwLock::new(client, self.path())
    }

    fn semaphore(self, client: &Client) -> Semaphore {
        Semaphore::new(client, self.path(), self.capacity())
    }

    fn multi_lock(self, client: &Client) -> MultiLock {
        let mut paths = ["x", "y"].map(|name| format!("{}/{name}", self.path()));
        if client.session_id() % 2 == 0 {
            paths.reverse();
        }
        MultiLock::new(paths.map(|path| Lock::new(client, path)))
    }
}

/// A hold of any of them.
pub(super) enum Guard {
    Fair(LockGuard),
    Simple(SimpleGuard),
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

    pub(super) fn weight(&self) -> u32 {
        match self {
            Self::Write(_) => Recipe::RwLock.capacity(),
            Self::Permit(permit) => permit.permits(),
            Self::Fair(_) | Self::Simple(_) | Self::Read(_) | Self::Multi(_) => 1,
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
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(permit) => permit,
            Self::Multi(guard) => &guard.guards()[1],
        }
    }
}
