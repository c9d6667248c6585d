//! What `bellwether lock` can acquire: a lock, a side of a read/write lock, or permits of a semaphore.

use std::collections::BTreeSet;
use std::pin::Pin;

use bellwether::inspect::Wants;
use bellwether::line::{Layout, Progress};
use bellwether::{Client, Error, Guard, Hold, Lock, RwLock, Semaphore, Waiting};

use crate::args::{LayoutName, LockArgs};

#[derive(Debug)]
pub(crate) enum AnyLock {
    Lock(Lock),
    Read(RwLock),
    Write(RwLock),
    Permits {
        semaphore: Semaphore,
        permits: u32,
        /// The limit in the arguments; the limit on the servers may differ.
        limit: u32,
    },
}

/// The future of a hold.
pub(crate) type Turn = Pin<Box<dyn Future<Output = Result<Hold, Error>>>>;

impl AnyLock {
    /// The locks that the arguments name, each once, in the order of their paths, which is the order in which they are acquired.
    pub(crate) fn all(client: &Client, args: &LockArgs) -> Vec<Self> {
        let paths: BTreeSet<_> = args.also.iter().chain([&args.path]).collect();
        let locks = paths.into_iter().map(|path| Self::at(client, path, args));
        locks.collect()
    }

    /// The lock of arguments that name only one.
    pub(crate) fn of(client: &Client, args: &LockArgs) -> Self {
        Self::at(client, &args.path, args)
    }

    /// A lock of the kind that the arguments ask for. Exclusive locks leave a crash mark.
    fn at(client: &Client, path: &str, args: &LockArgs) -> Self {
        if let Some(limit) = args.of {
            let semaphore = Semaphore::new(client, path, limit);
            return Self::Permits {
                semaphore,
                permits: args.permits,
                limit,
            };
        }
        let layout = layout(args);
        if !args.read && !args.write {
            let lock = Lock::new(client, path).layout(layout);
            return Self::Lock(lock.lock_delay(args.lock_delay.unwrap_or_default()));
        }
        let lock = RwLock::new(client, path).layout(layout);
        let lock = lock.lock_delay(args.lock_delay.unwrap_or_default());
        match args.read {
            true => Self::Read(lock),
            false => Self::Write(lock),
        }
    }

    /// Acquires it if it is free.
    pub(crate) async fn try_acquire(&self) -> Result<Option<Hold>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire().await?.map(Hold::from),
            Self::Read(lock) => lock.try_read().await?.map(Hold::from),
            Self::Write(lock) => lock.try_write().await?.map(Hold::from),
            Self::Permits {
                semaphore, permits, ..
            } => {
                let permit = semaphore.try_acquire_many(*permits).await?;
                permit.map(Hold::from)
            }
        })
    }

    /// Enters the line.
    pub(crate) async fn join(&self) -> Result<(Progress, Turn), Error> {
        Ok(match self {
            Self::Lock(lock) => turn(lock.join().await?),
            Self::Read(lock) => turn(lock.join_read().await?),
            Self::Write(lock) => turn(lock.join_write().await?),
            Self::Permits {
                semaphore, permits, ..
            } => turn(semaphore.join_many(*permits).await?),
        })
    }

    /// What a contender wants here.
    pub(crate) fn wants(&self) -> Wants {
        match self {
            Self::Lock(_) => Wants::Lock,
            Self::Read(_) => Wants::Read,
            Self::Write(_) => Wants::Write,
            Self::Permits { permits, .. } => Wants::Permits(*permits),
        }
    }

    /// Whether it can be acquired while another hold of this kind exists.
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

    /// The limit of a semaphore on the servers, which counts, if it differs from the arguments.
    pub(crate) async fn other_limit(&self) -> Option<u32> {
        match self {
            Self::Permits {
                semaphore, limit, ..
            } => {
                // If it cannot be read, acquiring fails with the reason.
                let stored = semaphore.limit().await.ok();
                stored.filter(|stored| stored != limit)
            }
            _ => None,
        }
    }
}

fn turn<G: Guard>(waiting: Waiting<G>) -> (Progress, Turn) {
    let progress = waiting.progress();
    (
        progress,
        Box::pin(async move { waiting.turn().await.map(G::into) }),
    )
}

/// The layout that the arguments ask for.
pub(crate) fn layout(args: &LockArgs) -> Layout {
    match args.layout {
        None => Layout::Bellwether,
        Some(LayoutName::Curator) => Layout::Curator,
        Some(LayoutName::Kazoo) => Layout::Kazoo,
    }
}

/// Deletes the record of a crash at a path, whatever the kind of the lock.
pub(crate) async fn clear(client: &Client, path: &str) -> Result<bool, Error> {
    Lock::new(client, path).clear_crash_mark().await
}
