//! Re-entrant handles: they acquire again at once what they hold, an inner release frees nothing, and the last one frees the lock.

use std::task::Poll;

use bellwether::{
    Client, Error, ErrorKind, Hold, Lock, ReentrantGuard, ReentrantLock, ReentrantRwLock, RwLock,
};
use futures_util::poll;
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::time::timeout;

use super::tracks::Log;
use super::{Ask, Holdable, How};
use crate::stage::Stage;

/// A lock that its holder acquires a second time.
#[derive(Debug)]
pub(crate) struct Nested;

/// The same for a read/write lock: a reader reads again, a writer reads or writes again.
#[derive(Debug)]
pub(crate) struct NestedSides;

impl Holdable for Nested {
    const NAME: &'static str = "reentrant-lock";
    type Guard = ReentrantGuard;

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<ReentrantGuard>, Error> {
        let handle = ReentrantLock::new(Lock::new(client, "/sim/reentrant"));
        let mut idle = Box::pin(handle.acquire());
        // Begun, and then neither polled nor dropped while the other call waits.
        if let Poll::Ready(begun) = poll!(&mut idle) {
            return begun.map(Some);
        }
        let outer = first(ask.how, handle.acquire()).await;
        drop(idle);
        let Some(outer) = outer? else {
            return Ok(None);
        };
        ask.log.granted(&outer);
        again(ask.log, outer, handle.acquire()).await
    }

    fn holds(guard: &ReentrantGuard) -> Vec<&Hold> {
        vec![guard]
    }

    async fn release(guard: ReentrantGuard, log: &Log) -> Result<(), Error> {
        log.release(guard, ReentrantGuard::release).await
    }
}

impl Holdable for NestedSides {
    const NAME: &'static str = "reentrant-rwlock";
    const CAPACITY: u32 = 1_000;
    type Guard = ReentrantGuard;

    fn some_weight(random: &mut StdRng) -> u32 {
        match random.random_ratio(1, 3) {
            true => Self::CAPACITY,
            false => 1,
        }
    }

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<ReentrantGuard>, Error> {
        let handle = ReentrantRwLock::new(RwLock::new(client, "/sim/reentrant-rwlock"));
        let outer = match ask.weight {
            1 => first(ask.how, handle.read()).await?,
            _ => first(ask.how, handle.write()).await?,
        };
        let Some(outer) = outer else {
            return Ok(None);
        };
        ask.log.granted(&outer);
        if ask.weight == 1 {
            refused(ask.log, &outer, handle.write()).await;
        }
        match ask.weight == 1 || is_even(&outer) {
            true => again(ask.log, outer, handle.read()).await,
            false => again(ask.log, outer, handle.write()).await,
        }
    }

    fn holds(guard: &ReentrantGuard) -> Vec<&Hold> {
        vec![guard]
    }

    async fn release(guard: ReentrantGuard, log: &Log) -> Result<(), Error> {
        log.release(guard, ReentrantGuard::release).await
    }
}

async fn first(
    how: How,
    acquired: impl Future<Output = Result<ReentrantGuard, Error>>,
) -> Result<Option<ReentrantGuard>, Error> {
    match how {
        How::Within(limit) => timeout(limit, acquired).await.ok().transpose(),
        // A handle cannot be tried without waiting.
        How::Wait | How::AtOnce => acquired.await.map(Some),
    }
}

/// Acquires again what `outer` holds, and releases one of both guards.
async fn again(
    log: &Log,
    outer: ReentrantGuard,
    acquired: impl Future<Output = Result<ReentrantGuard, Error>>,
) -> Result<Option<ReentrantGuard>, Error> {
    let since = Stage::now();
    let acquired = log.watching(&outer, acquired).await;
    let is_same = matches!(&acquired, Ok(inner) if inner.token() == outer.token());
    if !is_same {
        // Only a lost hold is not shared: then the handle joins the line again.
        if outer.is_held() {
            log.wrong(format!(
                "a held handle did not share its hold: {acquired:?}"
            ));
        }
        log.lost(&outer);
        return acquired.map(Some);
    }
    let inner = acquired?;
    let count = inner.count();
    let (rest, released) = match is_even(&inner) {
        true => (inner, outer),
        false => (outer, inner),
    };
    if let Err(error) = released.release().await {
        log.wrong(format!("an inner release failed: {error}"));
    }
    // Neither asks a server. An inner release that freed the lock would, and the rest would be lost before anybody else is granted.
    let waited = Stage::now() - since;
    if count != 2 || waited > 0 {
        log.wrong(format!(
            "{count} guards shared a hold, and the inner one took {waited} ms"
        ));
    }
    Ok(Some(rest))
}

/// Asks for the write side with a handle that reads.
async fn refused(
    log: &Log,
    outer: &ReentrantGuard,
    acquired: impl Future<Output = Result<ReentrantGuard, Error>>,
) {
    let acquired = log.watching(outer, acquired).await;
    let is_refused = matches!(
        acquired,
        Err(Error {
            kind: ErrorKind::Unsupported { .. },
            ..
        })
    );
    // If the hold was lost, the handle may write.
    if !is_refused && outer.is_held() {
        log.wrong(format!("a handle that reads may write: {acquired:?}"));
    }
}

/// A choice that is the same in every run of a seed.
fn is_even(guard: &ReentrantGuard) -> bool {
    guard.token().number() % 2 == 0
}
