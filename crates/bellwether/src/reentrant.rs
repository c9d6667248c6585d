//! Handles that may take again what they hold.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use crate::error::{AcquireError, ReleaseError};
use crate::hold::Hold;
use crate::lock::{Lock, LockGuard};
use crate::rwlock::{ReadGuard, RwLock, WriteGuard};

/// A handle to a [`Lock`] that may take it again while it holds it.
///
/// # What it guarantees
///
/// What the lock does, between handles: all guards of one handle and its clones share one hold, with one token, which ends with
/// the last of them. The second is had at once, with nothing sent, whoever waits in the line.
///
/// # What it does not
///
/// The handle is who holds. Tasks that must exclude each other need handles of their own, each made with [`new`](Self::new). A
/// hold that was lost is not taken again: the next guard queues anew.
///
/// # Node layout, fairness and session loss
///
/// Those of the lock.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{AcquireError, Client, Lock, ReentrantLock};
/// async fn outer(lock: &ReentrantLock) -> Result<(), AcquireError> {
///     let _guard = lock.acquire().await?;
///     inner(lock).await
/// }
///
/// async fn inner(lock: &ReentrantLock) -> Result<(), AcquireError> {
///     let guard = lock.acquire().await?;
///     println!("held {} times, with token {}", guard.count(), guard.token());
///     Ok(())
/// }
///
/// # async fn run(client: &Client) -> Result<(), AcquireError> {
/// outer(&ReentrantLock::new(Lock::new(client, "/jobs/nightly"))).await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantLock {
    lock: Lock,
    held: Held,
}

impl ReentrantLock {
    /// A new handle. Its clones are the same holder; another handle is another.
    #[must_use]
    pub fn new(lock: Lock) -> Self {
        Self {
            lock,
            held: Held::default(),
        }
    }

    /// Takes the lock, or takes it once more.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<ReentrantGuard, AcquireError> {
        let acquire = async { self.lock.acquire().await.map(Taken::Lock) };
        self.held.share_or(acquire).await
    }
}

/// A handle to an [`RwLock`] that may take again what it holds.
///
/// # What it guarantees
///
/// What [`ReentrantLock`] does. One that reads may read again while a writer waits in the line: queued behind that writer it
/// would wait for itself. One that writes may read, and that guard shares the write side.
///
/// # What it does not
///
/// One that reads and asks to write is refused, since it would wait for itself.
///
/// # Node layout and session loss
///
/// Those of the lock.
///
/// # Fairness
///
/// That of the lock, but a handle that reads goes on reading past those who wait for as long as it has a guard left.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{AcquireError, Client, ReentrantRwLock, RwLock};
/// # async fn run(client: &Client) -> Result<(), AcquireError> {
/// let lock = ReentrantRwLock::new(RwLock::new(client, "/config/lock"));
/// let outer = lock.read().await?;
/// // Had at once, even if a writer waits.
/// let inner = lock.read().await?;
/// assert_eq!(inner.token(), outer.token());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantRwLock {
    lock: RwLock,
    held: Held,
}

impl ReentrantRwLock {
    /// A new handle. Its clones are the same holder; another handle is another.
    #[must_use]
    pub fn new(lock: RwLock) -> Self {
        Self {
            lock,
            held: Held::default(),
        }
    }

    /// Reads, or shares whichever side the handle holds.
    ///
    /// # Cancel safety
    ///
    /// As [`RwLock::read`].
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    pub async fn read(&self) -> Result<ReentrantGuard, AcquireError> {
        let read = async { self.lock.read().await.map(Taken::Read) };
        self.held.share_or(read).await
    }

    /// Writes, or writes once more.
    ///
    /// # Cancel safety
    ///
    /// As [`RwLock::write`].
    ///
    /// # Errors
    ///
    /// [`AcquireError::HoldsReadSide`] if the handle reads; else as [`RwLock::write`].
    pub async fn write(&self) -> Result<ReentrantGuard, AcquireError> {
        let write = async { self.lock.write().await.map(Taken::Write) };
        let guard = self.held.share_or(write).await?;
        match *guard.taken {
            Taken::Read(_) => Err(AcquireError::HoldsReadSide {
                path: self.lock.path().to_owned(),
            }),
            _ => Ok(guard),
        }
    }
}

/// What a handle holds, if anything.
#[derive(Clone, Debug, Default)]
struct Held(Arc<Mutex<Weak<Taken>>>);

#[derive(Debug)]
enum Taken {
    Lock(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Held {
    /// One more guard of what is held, or the first of what is taken now. Clones that ask meanwhile share what comes of it.
    async fn share_or(
        &self,
        take: impl Future<Output = Result<Taken, AcquireError>>,
    ) -> Result<ReentrantGuard, AcquireError> {
        let mut held = self.0.lock().await;
        match held.upgrade() {
            Some(taken) if taken.hold().is_held() => return Ok(ReentrantGuard { taken }),
            // It may be lost by the clock alone. Then its node is there still, and we would wait for ourselves.
            Some(taken) => taken.hold().abandon(),
            None => {}
        }
        let taken = Arc::new(take.await?);
        *held = Arc::downgrade(&taken);
        Ok(ReentrantGuard { taken })
    }
}

impl Taken {
    fn hold(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }

    async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }
}

/// A share in what a re-entrant handle holds; what it promises is told at [`Hold`].
#[derive(Debug)]
#[must_use = "the share is given back when the guard is dropped"]
pub struct ReentrantGuard {
    taken: Arc<Taken>,
}

impl ReentrantGuard {
    /// How many guards share the hold now, this one among them.
    #[must_use]
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.taken)
    }

    /// Gives this share back; with the last one, the hold, waiting for the server's acknowledgement.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]; only the last one reports.
    pub async fn release(self) -> Result<(), ReleaseError> {
        match Arc::into_inner(self.taken) {
            Some(taken) => taken.release().await,
            None => Ok(()),
        }
    }
}

impl Deref for ReentrantGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.taken.hold()
    }
}
