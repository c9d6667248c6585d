//! When the job of a hold has to end.

use std::time::Duration;

use bellwether::LockGuard;
use tokio::time::Instant;

/// What a keeper has to know of a hold, whatever its kind.
pub(crate) trait Hold {
    /// What is held.
    fn path(&self) -> &str;

    /// Resolves when the job has to begin to end, `grace` before the hold can no longer be relied on; returns when it
    /// must be gone. Cancel safe.
    async fn expiring(&self, grace: Duration) -> Instant;
}

impl Hold for LockGuard {
    fn path(&self) -> &str {
        self.path()
    }

    // `lost` comes early enough for a grace of a third of the session timeout if the connection was cut, but not if the
    // server itself ended the hold.
    async fn expiring(&self, grace: Duration) -> Instant {
        self.lost().await;
        Instant::now() + grace
    }
}
