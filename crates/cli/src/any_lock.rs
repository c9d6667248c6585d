//! What `bellwether lock` can take: a lock, a side of a read/write lock, or permits of a semaphore.

use std::ops::Deref;
use std::pin::Pin;

use bellwether::{
    AcquireError, ClearError, Client, Hold, Layout, Lock, LockGuard, Permit, Progress, ReadGuard,
    ReleaseError, RwLock, Semaphore, Waiting, Wants, WriteGuard,
};

use crate::args::{LayoutName, LockArgs};
use crate::presented::presented;

#[derive(Debug)]
pub(crate) enum AnyLock {
    Lock(Lock),
    Read(RwLock),
    Write(RwLock),
    Permits {
        semaphore: Semaphore,
        permits: u32,
        /// What the limit is believed to be.
        limit: u32,
    },
}

/// A turn that is waited for.
pub(crate) type Turn = Pin<Box<dyn Future<Output = Result<AnyGuard, AcquireError>>>>;

impl AnyLock {
    /// The lock that the arguments name. Exclusive ones leave a crash mark.
    pub(crate) fn of(client: &Client, args: &LockArgs) -> Self {
        let (path, layout) = (&args.path, layout(args));
        if let Some(limit) = args.of {
            let semaphore = Semaphore::new(client, path, limit).layout(layout);
            return Self::Permits {
                semaphore: presented!(semaphore, client, args),
                permits: args.permits,
                limit,
            };
        }
        if !args.read && !args.write {
            let lock = Lock::new(client, path).layout(layout);
            return Self::Lock(presented!(lock, client, args).lock_delay(args.lock_delay));
        }
        let lock = RwLock::new(client, path).layout(layout);
        let lock = presented!(lock, client, args).lock_delay(args.lock_delay);
        match args.read {
            true => Self::Read(lock),
            false => Self::Write(lock),
        }
    }

    /// Takes it, if nobody is in the way.
    pub(crate) async fn try_acquire(&self) -> Result<Option<AnyGuard>, AcquireError> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire().await?.map(AnyGuard::Lock),
            Self::Read(lock) => lock.try_read().await?.map(AnyGuard::Read),
            Self::Write(lock) => lock.try_write().await?.map(AnyGuard::Write),
            Self::Permits {
                semaphore, permits, ..
            } => {
                let permit = semaphore.try_acquire(*permits).await?;
                permit.map(AnyGuard::Permit)
            }
        })
    }

    /// Takes a place in the line.
    pub(crate) async fn join(&self) -> Result<(Progress, Turn), AcquireError> {
        Ok(match self {
            Self::Lock(lock) => turn(lock.join().await?, AnyGuard::Lock),
            Self::Read(lock) => turn(lock.join_read().await?, AnyGuard::Read),
            Self::Write(lock) => turn(lock.join_write().await?, AnyGuard::Write),
            Self::Permits {
                semaphore, permits, ..
            } => turn(semaphore.join(*permits).await?, AnyGuard::Permit),
        })
    }

    /// Whether it can be had while a holder of the same lock has this.
    pub(crate) fn shares_with(&self, held: Wants) -> bool {
        match self {
            Self::Lock(_) | Self::Write(_) => false,
            Self::Read(_) => held == Wants::Read,
            Self::Permits { .. } => matches!(held, Wants::Permits(_)),
        }
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Lock(lock) => lock.path(),
            Self::Read(lock) | Self::Write(lock) => lock.path(),
            Self::Permits { semaphore, .. } => semaphore.path(),
        }
    }

    /// The limit of a semaphore, if it is another than the arguments say: the servers' counts.
    pub(crate) async fn other_limit(&self) -> Option<u32> {
        match self {
            Self::Permits {
                semaphore, limit, ..
            } => {
                // If it cannot be read, whoever asks for permits hears why.
                let stored = semaphore.limit().await.ok();
                stored.filter(|stored| stored != limit)
            }
            _ => None,
        }
    }
}

fn turn<G: 'static>(waiting: Waiting<G>, guard: fn(G) -> AnyGuard) -> (Progress, Turn) {
    let progress = waiting.progress();
    (
        progress,
        Box::pin(async move { waiting.turn().await.map(guard) }),
    )
}

fn layout(args: &LockArgs) -> Layout {
    match args.layout {
        None => Layout::Bellwether,
        Some(LayoutName::Curator) => Layout::Curator,
        Some(LayoutName::Kazoo) => Layout::Kazoo,
    }
}

/// Forgets the crash of a holder at a path, of whichever kind the lock there is.
pub(crate) async fn clear(client: &Client, path: &str) -> Result<bool, ClearError> {
    Lock::new(client, path).clear().await
}

#[derive(Debug)]
pub(crate) enum AnyGuard {
    Lock(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
}

impl AnyGuard {
    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }

    /// Leaves the mark of a crash as it was found.
    pub(crate) async fn release_unrepaired(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release_unrepaired().await,
            Self::Write(guard) => guard.release_unrepaired().await,
            // They never touch it.
            Self::Read(_) | Self::Permit(_) => self.release().await,
        }
    }
}

impl Deref for AnyGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(permit) => permit,
        }
    }
}
