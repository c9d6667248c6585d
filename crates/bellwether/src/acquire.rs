//! A trait for everything that can be acquired and held: locks, sides of read/write locks, semaphores and elections.

use std::time::Duration;

use crate::election::{Election, Leadership};
use crate::error::AcquireError;
use crate::hold::guard::Guard;
use crate::lock::rwlock::{ReadGuard, ReadSide, WriteGuard, WriteSide};
use crate::lock::semaphore::{Permit, Semaphore};
use crate::lock::simple::{SimpleGuard, SimpleLock};
use crate::lock::{Lock, LockGuard};

/// Something at a path that can be acquired and held, for generic code.
///
/// ```no_run
/// use bellwether::error::AcquireError;
/// use bellwether::{Acquire, Client, Election, FencingToken, Lock, RwLock};
///
/// /// Does a piece of work under any kind of hold.
/// async fn guarded(
///     what: impl Acquire,
///     work: impl AsyncFnOnce(FencingToken),
/// ) -> Result<(), AcquireError> {
///     let guard = what.acquire().await?;
///     if guard.run(work(guard.token())).await.is_err() {
///         println!("{} was lost", what.path());
///     }
///     Ok(())
/// }
///
/// # async fn run(client: &Client) -> Result<(), AcquireError> {
/// guarded(Lock::new(client, "/lock"), async |_| {}).await?;
/// guarded(RwLock::new(client, "/rwlock").reader(), async |_| {}).await?;
/// guarded(Election::new(client, "/election"), async |_| {}).await
/// # }
/// ```
pub trait Acquire: Send + Sync {
    /// The guard type.
    type Guard: Guard;

    /// Waits for the turn of this contender and returns the guard.
    fn acquire(&self) -> impl Future<Output = Result<Self::Guard, AcquireError>> + Send;

    /// As [`acquire`](Self::acquire), but gives up after a time. The limit is for the whole call.
    fn acquire_timeout(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Self::Guard, AcquireError>> + Send;

    /// Acquires it if no other contender is in the way; `None` otherwise.
    fn try_acquire(&self)
    -> impl Future<Output = Result<Option<Self::Guard>, AcquireError>> + Send;

    /// The path.
    fn path(&self) -> &str;
}

macro_rules! acquire {
    ($recipe:ty, $guard:ty, $acquire:ident, $acquire_timeout:ident, $try_acquire:ident) => {
        impl Acquire for $recipe {
            type Guard = $guard;

            async fn acquire(&self) -> Result<$guard, AcquireError> {
                <$recipe>::$acquire(self).await
            }

            async fn acquire_timeout(&self, limit: Duration) -> Result<$guard, AcquireError> {
                <$recipe>::$acquire_timeout(self, limit).await
            }

            async fn try_acquire(&self) -> Result<Option<$guard>, AcquireError> {
                <$recipe>::$try_acquire(self).await
            }

            fn path(&self) -> &str {
                <$recipe>::path(self)
            }
        }
    };
}

acquire!(Lock, LockGuard, acquire, acquire_timeout, try_acquire);
acquire!(
    SimpleLock,
    SimpleGuard,
    acquire,
    acquire_timeout,
    try_acquire
);
acquire!(Semaphore, Permit, acquire, acquire_timeout, try_acquire);
acquire!(
    Election,
    Leadership,
    campaign,
    campaign_timeout,
    try_campaign
);
acquire!(ReadSide, ReadGuard, acquire, acquire_timeout, try_acquire);
acquire!(WriteSide, WriteGuard, acquire, acquire_timeout, try_acquire);
