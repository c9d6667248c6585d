//! Locks: fair, with a crash mark, simple, several at once, two contenders in one session, and leadership, which is a lock too.

use bellwether::{
    Client, Election, Error, Hold, Leadership, Lock, LockGuard, MultiGuard, MultiLock, SimpleGuard,
    SimpleLock,
};
use futures_util::future::select_all;
use tokio::time::timeout;

use super::tracks::Log;
use super::{Ask, Holdable, How};
use crate::worker::Worker;

#[derive(Debug)]
pub(crate) struct FairLock;

impl Holdable for FairLock {
    const NAME: &'static str = "lock";
    type Guard = LockGuard;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<LockGuard>, Error> {
        acquire(&Lock::new(client, "/sim/lock"), ask).await
    }

    fn holds(guard: &LockGuard) -> Vec<&Hold> {
        vec![guard]
    }

    async fn release(guard: LockGuard, log: &Log) -> Result<(), Error> {
        log.release(guard, LockGuard::release).await
    }
}

/// A lock with a crash mark.
#[derive(Debug)]
pub(crate) struct MarkedLock;

impl Holdable for MarkedLock {
    const NAME: &'static str = "marked-lock";
    const IS_MARKED: bool = true;
    type Guard = LockGuard;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<LockGuard>, Error> {
        acquire(&Lock::new(client, "/sim/marked").crash_mark(), ask).await
    }

    const CAN_CHANGE: bool = true;

    /// Notes how far the work is, several times.
    async fn change(
        _: &Client,
        worker: &mut Worker,
        guard: LockGuard,
        log: &Log,
    ) -> Option<LockGuard> {
        for note in 1..=3 {
            match log.watching(&guard, guard.note(note.to_string())).await {
                Ok(()) => log.noted(&guard, note),
                Err(error) => {
                    worker.failed(&error);
                    break;
                }
            }
        }
        Some(guard)
    }

    fn holds(guard: &LockGuard) -> Vec<&Hold> {
        vec![guard]
    }

    async fn release(guard: LockGuard, log: &Log) -> Result<(), Error> {
        log.release(guard, LockGuard::release).await
    }

    fn may_stay(path: &str) -> bool {
        // The crash mark of a killed holder, and its directories.
        ["/sim", "/sim/marked", "/sim/marked/held"].contains(&path)
    }
}

/// A lock that two tasks of a process ask for through one session. When one of them has it, the other waits for some time, and gives up its
/// place in line.
#[derive(Debug)]
pub(crate) struct RivalLocks;

impl Holdable for RivalLocks {
    const NAME: &'static str = "rival-locks";
    type Guard = LockGuard;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<LockGuard>, Error> {
        let lock = Lock::new(client, "/sim/rivals");
        let both = [(); 2].map(|()| Box::pin(acquire(&lock, ask)));
        let (first, _, mut rest) = select_all(both).await;
        let (Some(guard), Some(rival)) = (first?, rest.pop()) else {
            return Ok(None);
        };
        ask.log.granted(&guard);
        let waited = timeout(client.session_timeout() / 10, rival);
        match ask.log.watching(&guard, waited).await {
            // Two holds at once, if an operator has not deleted the node of the first.
            Ok(Ok(Some(second))) if guard.is_held() => {
                ask.log.granted(&second);
                ask.log.releasing(&second);
            }
            Ok(Err(error)) => ask.log.failed(&error),
            _ => {}
        }
        Ok(Some(guard))
    }

    fn holds(guard: &LockGuard) -> Vec<&Hold> {
        vec![guard]
    }

    async fn release(guard: LockGuard, log: &Log) -> Result<(), Error> {
        log.release(guard, LockGuard::release).await
    }
}

async fn acquire(lock: &Lock, ask: Ask<'_>) -> Result<Option<LockGuard>, Error> {
    match ask.how {
        How::Wait => lock.acquire().await.map(Some),
        How::Within(limit) => lock.acquire_timeout(limit).await.map(Some),
        How::AtOnce => lock.try_acquire().await,
    }
}

/// The simple lock: one node that all contenders try to create.
#[derive(Debug)]
pub(crate) struct PlainLock;

impl Holdable for PlainLock {
    const NAME: &'static str = "simple-lock";
    /// Its path is used again: an operator cannot tell which hold a deletion ends.
    const CAN_BE_WIPED: bool = false;
    const IS_FAIR: bool = false;
    type Guard = SimpleGuard;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<SimpleGuard>, Error> {
        let lock = SimpleLock::new(client, "/sim/simple");
        match ask.how {
            How::Wait => lock.acquire().await.map(Some),
            How::Within(limit) => lock.acquire_timeout(limit).await.map(Some),
            How::AtOnce => lock.try_acquire().await,
        }
    }

    fn holds(guard: &SimpleGuard) -> Vec<&Hold> {
        vec![guard]
    }

    async fn release(guard: SimpleGuard, log: &Log) -> Result<(), Error> {
        log.release(guard, SimpleGuard::release).await
    }
}

/// Two locks at once, which workers name in different orders.
#[derive(Debug)]
pub(crate) struct BothLocks;

impl Holdable for BothLocks {
    const NAME: &'static str = "multi-lock";
    type Guard = MultiGuard;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<MultiGuard>, Error> {
        let mut paths = ["/sim/multi/x", "/sim/multi/y"];
        if client.session_id().number() % 2 == 0 {
            paths.reverse();
        }
        let locks = MultiLock::new(paths.map(|path| Lock::new(client, path)));
        match ask.how {
            How::Wait => locks.acquire().await.map(Some),
            How::Within(limit) => locks.acquire_timeout(limit).await.map(Some),
            How::AtOnce => locks.try_acquire().await,
        }
    }

    fn holds(guard: &MultiGuard) -> Vec<&Hold> {
        guard.guards().iter().map(|guard| &**guard).collect()
    }

    async fn lost(guard: &MultiGuard) {
        guard.lost().await;
    }

    async fn release(guard: MultiGuard, log: &Log) -> Result<(), Error> {
        let is_whole = guard.guards()[0].token().number() % 2 == 0;
        if is_whole {
            Self::holds(&guard)
                .into_iter()
                .for_each(|hold| log.releasing(hold));
            return guard.release().await;
        }
        let [x, y] = <[LockGuard; 2]>::try_from(guard.into_guards()).expect("there are two paths");
        let released = log.release(y, LockGuard::release);
        log.watching(&x, released).await?;
        log.release(x, LockGuard::release).await
    }
}

/// A lock that the leader of an election acquires: a combination that users write.
#[derive(Debug)]
pub(crate) struct LeaderWithLock;

impl Holdable for LeaderWithLock {
    const NAME: &'static str = "election-with-lock";
    type Guard = (Leadership, LockGuard);

    async fn acquire(
        client: &Client,
        ask: Ask<'_>,
    ) -> Result<Option<(Leadership, LockGuard)>, Error> {
        let Some(leadership) = Leaders::acquire(client, ask).await? else {
            return Ok(None);
        };
        ask.log.granted(&leadership);
        let lock = Lock::new(client, "/sim/leaders-lock");
        match leadership.run(acquire(&lock, ask)).await {
            Ok(lock) => Ok(lock?.map(|lock| (leadership, lock))),
            Err(_) => {
                ask.log.lost(&leadership);
                Ok(None)
            }
        }
    }

    fn holds((leadership, lock): &(Leadership, LockGuard)) -> Vec<&Hold> {
        vec![leadership, lock]
    }

    async fn release((leadership, lock): (Leadership, LockGuard), log: &Log) -> Result<(), Error> {
        let released = log.release(lock, LockGuard::release);
        log.watching(&leadership, released).await?;
        log.release(leadership, Leadership::resign).await
    }
}

/// Leadership.
#[derive(Debug)]
pub(crate) struct Leaders;

impl Holdable for Leaders {
    const NAME: &'static str = "election";
    type Guard = Leadership;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<Leadership>, Error> {
        let election = Election::new(client, "/sim/election");
        match ask.how {
            // An election cannot be tried without waiting.
            How::Wait | How::AtOnce => election.campaign().await.map(Some),
            How::Within(limit) => election.campaign_timeout(limit).await.map(Some),
        }
    }

    fn holds(leadership: &Leadership) -> Vec<&Hold> {
        vec![leadership]
    }

    async fn release(leadership: Leadership, log: &Log) -> Result<(), Error> {
        log.release(leadership, Leadership::resign).await
    }
}
