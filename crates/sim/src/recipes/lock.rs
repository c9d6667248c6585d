//! Locks: fair, with a crash mark, simple, several at once, re-entrant, and leadership, which is a lock too.

use bellwether::error::{AcquireError, ReleaseError};
use bellwether::{
    Client, Election, Hold, Leadership, Lock, LockGuard, MultiGuard, MultiLock, SimpleGuard,
    SimpleLock,
};

use super::holds::{Ask, Holdable};

#[derive(Debug)]
pub(super) struct FairLock;

impl Holdable for FairLock {
    const NAME: &'static str = "lock";
    type Guard = LockGuard;

    async fn acquire(client: &Client, ask: Ask, _: u32) -> Result<Option<LockGuard>, AcquireError> {
        acquire(&Lock::new(client, "/sim/lock"), ask).await
    }

    fn hold(guard: &LockGuard) -> &Hold {
        guard
    }

    async fn release(guard: LockGuard) -> Result<(), ReleaseError> {
        guard.release().await
    }
}

/// A lock with a crash mark.
#[derive(Debug)]
pub(super) struct MarkedLock;

impl Holdable for MarkedLock {
    const NAME: &'static str = "marked-lock";
    const IS_MARKED: bool = true;
    type Guard = LockGuard;

    async fn acquire(client: &Client, ask: Ask, _: u32) -> Result<Option<LockGuard>, AcquireError> {
        acquire(&Lock::new(client, "/sim/marked").crash_mark(), ask).await
    }

    fn hold(guard: &LockGuard) -> &Hold {
        guard
    }

    async fn release(guard: LockGuard) -> Result<(), ReleaseError> {
        guard.release().await
    }

    fn may_stay(path: &str) -> bool {
        // The crash mark of a killed holder, and its directories.
        ["/sim", "/sim/marked", "/sim/marked/held"].contains(&path)
    }
}

async fn acquire(lock: &Lock, ask: Ask) -> Result<Option<LockGuard>, AcquireError> {
    match ask {
        Ask::Wait => lock.acquire().await.map(Some),
        Ask::Within(limit) => lock.acquire_timeout(limit).await.map(Some),
        Ask::AtOnce => lock.try_acquire().await,
    }
}

/// The simple lock: one node that all contenders try to create.
#[derive(Debug)]
pub(super) struct PlainLock;

impl Holdable for PlainLock {
    const NAME: &'static str = "simple-lock";
    const IS_FAIR: bool = false;
    type Guard = SimpleGuard;

    async fn acquire(
        client: &Client,
        ask: Ask,
        _: u32,
    ) -> Result<Option<SimpleGuard>, AcquireError> {
        let lock = SimpleLock::new(client, "/sim/simple");
        match ask {
            Ask::Wait => lock.acquire().await.map(Some),
            Ask::Within(limit) => lock.acquire_timeout(limit).await.map(Some),
            Ask::AtOnce => lock.try_acquire().await,
        }
    }

    fn hold(guard: &SimpleGuard) -> &Hold {
        guard
    }

    async fn release(guard: SimpleGuard) -> Result<(), ReleaseError> {
        guard.release().await
    }
}

/// Two locks at once, which workers name in different orders.
#[derive(Debug)]
pub(super) struct BothLocks;

impl Holdable for BothLocks {
    const NAME: &'static str = "multi-lock";
    type Guard = MultiGuard;

    async fn acquire(
        client: &Client,
        ask: Ask,
        _: u32,
    ) -> Result<Option<MultiGuard>, AcquireError> {
        let mut paths = ["/sim/multi/x", "/sim/multi/y"];
        if client.session_id().number() % 2 == 0 {
            paths.reverse();
        }
        let locks = MultiLock::new(paths.map(|path| Lock::new(client, path)));
        match ask {
            Ask::Wait => locks.acquire().await.map(Some),
            Ask::Within(limit) => locks.acquire_timeout(limit).await.map(Some),
            Ask::AtOnce => locks.try_acquire().await,
        }
    }

    /// The lock that is acquired last.
    fn hold(guard: &MultiGuard) -> &Hold {
        &guard.guards()[1]
    }

    async fn lost(guard: &MultiGuard) {
        guard.lost().await;
    }

    async fn release(guard: MultiGuard) -> Result<(), ReleaseError> {
        guard.release().await
    }
}

/// A lock that the leader of an election acquires: a combination that users write.
#[derive(Debug)]
pub(super) struct LeaderWithLock;

impl Holdable for LeaderWithLock {
    const NAME: &'static str = "election-with-lock";
    type Guard = (Leadership, LockGuard);

    async fn acquire(
        client: &Client,
        ask: Ask,
        _: u32,
    ) -> Result<Option<(Leadership, LockGuard)>, AcquireError> {
        let Some(leadership) = Leaders::acquire(client, ask, 1).await? else {
            return Ok(None);
        };
        let lock = acquire(&Lock::new(client, "/sim/leaders-lock"), ask).await?;
        Ok(lock.map(|lock| (leadership, lock)))
    }

    fn hold((_, lock): &(Leadership, LockGuard)) -> &Hold {
        lock
    }

    async fn lost((leadership, lock): &(Leadership, LockGuard)) {
        tokio::select! {
            biased;
            () = leadership.lost() => {}
            () = lock.lost() => {}
        }
    }

    async fn release((leadership, lock): (Leadership, LockGuard)) -> Result<(), ReleaseError> {
        lock.release().await?;
        leadership.resign().await
    }
}

/// Leadership.
#[derive(Debug)]
pub(super) struct Leaders;

impl Holdable for Leaders {
    const NAME: &'static str = "election";
    type Guard = Leadership;

    async fn acquire(
        client: &Client,
        ask: Ask,
        _: u32,
    ) -> Result<Option<Leadership>, AcquireError> {
        let election = Election::new(client, "/sim/election");
        match ask {
            // An election cannot be tried without waiting.
            Ask::Wait | Ask::AtOnce => election.campaign().await.map(Some),
            Ask::Within(limit) => election.campaign_timeout(limit).await.map(Some),
        }
    }

    fn hold(leadership: &Leadership) -> &Hold {
        leadership
    }

    async fn release(leadership: Leadership) -> Result<(), ReleaseError> {
        leadership.resign().await
    }
}
