//! Several locks at once.

use std::time::Duration;

use futures_util::future::select_all;

use crate::error::{AcquireError, ReleaseError};
use crate::hold::{InTransit, Undo};
use crate::lock::{Lock, LockGuard};

/// Several locks that are taken together: all of them, or none.
///
/// # What it guarantees
///
/// The locks are taken in the order of their paths, whatever order they were given in, so users of the same locks never wait
/// for each other in a circle. Each has its own guard, with its own [token](crate::Hold::token). A path that is given twice is
/// taken once.
///
/// # What it does not
///
/// The order protects only those who take all their locks through one such call: somebody who holds one and then asks for another
/// can still wait in a circle. While it waits for one lock it holds those before it.
///
/// # Node layout, fairness and session loss
///
/// Those of each [`Lock`].
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use bellwether::{Client, Lock, MultiLock};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = ["/accounts/7", "/accounts/3"].map(|path| Lock::new(client, path));
/// let both = MultiLock::new(accounts).acquire_timeout(Duration::from_secs(5)).await?;
/// for guard in both.guards() {
///     println!("{} with token {}", guard.path(), guard.token());
/// }
/// both.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order of their paths, each path once.
    locks: Vec<Lock>,
}

impl MultiLock {
    /// All of these locks. Nothing is sent until they are acquired.
    #[must_use]
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        let mut locks = Vec::from_iter(locks);
        locks.sort_by(|one, other| one.path().cmp(other.path()));
        locks.dedup_by(|one, other| one.path() == other.path());
        Self { locks }
    }

    /// Waits until all are held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up all of them, in the background.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], for the first that cannot be had, and [`AcquireError::Lost`] if one that was held is lost meanwhile; those
    /// that were held are given back in the background.
    pub async fn acquire(&self) -> Result<MultiGuard, AcquireError> {
        let mut all = InTransit::new(MultiGuard::default());
        self.acquire_into(&mut all).await?;
        Ok(all.arrive())
    }

    /// As [`acquire`](Self::acquire), but gives up after a time. The limit is for all of them together.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`], with the path that was waited for, when the limit has passed; else as
    /// [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<MultiGuard, AcquireError> {
        let mut all = InTransit::new(MultiGuard::default());
        let Some(first) = self.locks.first() else {
            return Ok(all.arrive());
        };
        let acquired = self.acquire_into(&mut all);
        match first.client().home().timeout(limit, acquired).await {
            Some(acquired) => acquired.map(|()| all.arrive()),
            None => Err(AcquireError::TimedOut {
                path: self.locks[all.guards.len()].path().to_owned(),
                limit,
            }),
        }
    }

    /// Takes one after the other, as long as those that it has are held.
    async fn acquire_into(&self, all: &mut MultiGuard) -> Result<(), AcquireError> {
        for lock in &self.locks {
            let guard = tokio::select! {
                biased;
                () = all.lost() => return Err(all.loss()),
                guard = lock.acquire() => guard?,
            };
            all.guards.push(guard);
        }
        Ok(())
    }

    /// Takes all of them if all are free; `None` if one is not.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, AcquireError> {
        let mut all = InTransit::new(MultiGuard::default());
        for lock in &self.locks {
            match lock.try_acquire().await? {
                Some(guard) => all.guards.push(guard),
                None => return Ok(None),
            }
        }
        Ok(Some(all.arrive()))
    }
}

/// The holds on all locks of a [`MultiLock`].
#[derive(Debug, Default)]
#[must_use = "the locks are given back when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<LockGuard>,
}

impl MultiGuard {
    /// The guard of each lock, in the order of their paths.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The fencing token of the lock at a path, if it is one of these.
    #[must_use]
    pub fn token(&self, path: &str) -> Option<i64> {
        let guard = self.guards.iter().find(|guard| guard.path() == path)?;
        Some(guard.token())
    }

    /// Whether all are held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// Resolves when the first of them can no longer be relied on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if a hold was lost meanwhile.
    pub async fn lost(&self) {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    }

    /// What to say of one that is lost.
    fn loss(&self) -> AcquireError {
        let lost = self.guards.iter().find(|guard| !guard.is_held());
        let path = lost
            .map(|guard| guard.path())
            .unwrap_or_default()
            .to_owned();
        AcquireError::Lost { path }
    }

    /// Gives all of them back, the last one first, and waits for the acknowledgements.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// The first that was reported; the others are given back all the same.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let mut reported = Ok(());
        for guard in self.guards.into_iter().rev() {
            let released = guard.release().await;
            reported = reported.and(released);
        }
        reported
    }

    /// The guards, each to be given back alone.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }
}

impl Undo for MultiGuard {
    fn undo(self) {
        for guard in self.guards {
            guard.undo();
        }
    }
}
