//! Re-entrant handles: they may acquire again what they hold.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bellwether_client::process::Native;
use tokio::sync::Mutex;

use crate::error::{ConnectError, Error, ErrorKind, Failure};
use crate::hold::{Guard, Hold, InTransit, Undo};
use crate::lock::Lock;
use crate::lock::rwlock::RwLock;
use crate::session::client::Client;
use crate::session::telemetry::call;

/// A re-entrant handle to a [`Lock`]: it may acquire the lock again while it holds it.
///
/// # What it guarantees
///
/// The same as the lock, between handles. All guards of one handle and its clones share one hold with one token; the hold ends with the
/// last guard. A second guard is returned at once and sends nothing, even if other contenders wait in line.
///
/// # What it does not
///
/// The handle is the holder. Tasks that must exclude each other need their own handles, each created with [`new`](Self::new). A lost hold
/// is not shared again: the next guard joins the end of the line.
///
/// # Node layout, fairness and session loss
///
/// Those of the lock.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Lock, ReentrantLock};
/// # use bellwether::Error;
/// async fn outer(lock: &ReentrantLock) -> Result<(), Error> {
///     let _guard = lock.acquire().await?;
///     inner(lock).await
/// }
///
/// async fn inner(lock: &ReentrantLock) -> Result<(), Error> {
///     let guard = lock.acquire().await?;
///     println!("held {} times, with token {}", guard.count(), guard.token());
///     Ok(())
/// }
///
/// # async fn run(client: &Client) -> Result<(), Error> {
/// outer(&ReentrantLock::new(Lock::new(client, "/jobs/nightly"))).await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantLock {
    lock: Lock,
    held: HandleHold,
}

impl ReentrantLock {
    /// A new handle. Its clones are the same holder; another handle is another.
    #[must_use]
    pub fn new(lock: Lock) -> Self {
        Self {
            lock,
            held: HandleHold::default(),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Acquires the lock, or shares the current hold.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<ReentrantGuard, Error> {
        call!("reentrant_lock.acquire", self.path())
            .hold(async {
                let lock = self.lock.clone();
                let acquire = async move { lock.acquire().await.map(Taken::exclusive) };
                let client = self.lock.client();
                self.held.share_or(client, acquire).await
            })
            .await
    }
}

/// A re-entrant handle to an [`RwLock`]: it may acquire again what it holds.
///
/// # What it guarantees
///
/// The same as [`ReentrantLock`]. A handle that reads may read again while a writer waits in line: behind that writer it would wait for
/// itself. A handle that writes may read; that guard shares the write side.
///
/// # What it does not
///
/// A handle that reads and asks to write is refused, because it would wait for itself.
///
/// # Node layout and session loss
///
/// Those of the lock.
///
/// # Fairness
///
/// As the lock, but a handle that reads may acquire further read guards ahead of waiters, as long as it has a guard left.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, ReentrantRwLock, RwLock};
/// # use bellwether::Error;
/// # async fn run(client: &Client) -> Result<(), Error> {
/// let lock = ReentrantRwLock::new(RwLock::new(client, "/config/lock"));
/// let outer = lock.read().await?;
/// // Granted at once, even if a writer waits.
/// let inner = lock.read().await?;
/// assert_eq!(inner.token(), outer.token());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantRwLock {
    lock: RwLock,
    held: HandleHold,
}

impl ReentrantRwLock {
    /// A new handle. Its clones are the same holder; another handle is another.
    #[must_use]
    pub fn new(lock: RwLock) -> Self {
        Self {
            lock,
            held: HandleHold::default(),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Acquires the read side, or shares the side that the handle holds.
    ///
    /// # Cancel safety
    ///
    /// As [`RwLock::read`].
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    pub async fn read(&self) -> Result<ReentrantGuard, Error> {
        call!("reentrant_rwlock.read", self.path())
            .hold(async {
                let lock = self.lock.clone();
                let read = async move { lock.read().await.map(Taken::shared) };
                let client = self.lock.client();
                self.held.share_or(client, read).await
            })
            .await
    }

    /// Acquires the write side, or shares the write side that the handle holds.
    ///
    /// # Cancel safety
    ///
    /// As [`RwLock::write`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the handle reads; else as [`RwLock::write`].
    pub async fn write(&self) -> Result<ReentrantGuard, Error> {
        call!("reentrant_rwlock.write", self.path())
            .hold(async {
                let lock = self.lock.clone();
                let write = async move { lock.write().await.map(Taken::exclusive) };
                let client = self.lock.client();
                let guard = self.held.share_or(client, write).await?;
                match guard.taken.is_shared {
                    true => Err(ErrorKind::Unsupported {
                        reason: "the handle holds the read side",
                    }
                    .into()),
                    false => Ok(guard),
                }
            })
            .await
    }
}

/// The hold of a handle, if there is one.
#[derive(Clone, Debug, Default)]
struct HandleHold(Arc<Native<Mutex<Weak<Taken>>>>);

#[derive(Debug)]
struct Taken {
    hold: Hold,
    /// True if it is the read side.
    is_shared: bool,
    /// True when a caller has received a guard.
    is_delivered: AtomicBool,
}

impl HandleHold {
    /// Returns one more guard of the current hold, or the first guard of a new one. Clones that ask at the same time share the result.
    async fn share_or(
        &self,
        client: &Client,
        take: impl Future<Output = Result<Taken, Error>> + Send + 'static,
    ) -> Result<ReentrantGuard, Failure> {
        if let Ok(held) = self.0.try_lock()
            && let Some(taken) = held.upgrade().filter(|taken| taken.hold.is_held())
        {
            return Ok(ReentrantGuard { taken }.delivered());
        }
        let held = self.clone();
        // A task of its own, because others wait for it: it goes on while its caller neither polls nor drops it.
        let shared = async move { InTransit::new(held.share_or_take(take).await) };
        match client.runtime().spawn(shared).await {
            Some(guard) => guard.arrive().map(ReentrantGuard::delivered),
            None => Err(ConnectError::RuntimeGone.into()),
        }
    }

    async fn share_or_take(
        self,
        take: impl Future<Output = Result<Taken, Error>>,
    ) -> Result<ReentrantGuard, Failure> {
        // In a forked child: a task of the parent may have it locked. The lock below fails.
        if self.0.process().is_forked() {
            let taken = Arc::new(take.await?);
            return Ok(ReentrantGuard { taken });
        }
        let mut held = self.0.lock().await;
        match held.upgrade() {
            Some(taken) if taken.hold.is_held() => return Ok(ReentrantGuard { taken }),
            // The hold may be lost by the clock alone. Then its node still exists, and we would wait for ourselves.
            Some(taken) => taken.hold.abandon(),
            None => {}
        }
        let taken = Arc::new(take.await?);
        *held = Arc::downgrade(&taken);
        Ok(ReentrantGuard { taken })
    }
}

impl Taken {
    fn exclusive(guard: impl Guard) -> Self {
        Self {
            hold: guard.into(),
            is_shared: false,
            is_delivered: AtomicBool::new(false),
        }
    }

    fn shared(guard: impl Guard) -> Self {
        Self {
            is_shared: true,
            ..Self::exclusive(guard)
        }
    }
}

/// A share in the hold of a re-entrant handle; see [`Hold`] for what it promises.
#[derive(Debug)]
#[must_use = "the share is released when the guard is dropped"]
pub struct ReentrantGuard {
    taken: Arc<Taken>,
}

impl ReentrantGuard {
    /// Returns the number of guards that share the hold now, including this guard.
    #[must_use]
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.taken)
    }

    /// Releases this share. The last share releases the hold, and waits for the server's acknowledgement.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `NotHeld`, `LostWithSession`, `Refused`; only the last one reports.
    pub async fn release(self) -> Result<(), Error> {
        match Arc::into_inner(self.taken) {
            Some(taken) => taken.hold.release().await,
            None => Ok(()),
        }
    }

    /// Records that the caller has received the guard.
    fn delivered(self) -> Self {
        self.taken.is_delivered.store(true, Ordering::Relaxed);
        self
    }
}

impl Undo for ReentrantGuard {
    fn undo(self) {
        if let Some(taken) = Arc::into_inner(self.taken) {
            match taken.is_delivered.into_inner() {
                // There was work under the hold.
                true => drop(taken.hold),
                false => taken.hold.undo(),
            }
        }
    }
}

impl Deref for ReentrantGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.taken.hold
    }
}
