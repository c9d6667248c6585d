//! Common part of locks, permits and leaderships: acquire in one of several ways, work, release in one of several ways.

pub(super) mod lock;
pub(super) mod reentrant;
pub(super) mod rwlock;
pub(super) mod semaphore;
mod tracks;

use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether::{Client, Error, Hold};
use bellwether_testkit::History;
use futures_util::future::select_all;
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::time::timeout;

use self::tracks::{Log, Tracks};
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::worker::{Gone, Worker};

/// What a worker asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) how: How,
    /// Number of parts.
    pub(crate) weight: u32,
    /// Records holds that begin before `acquire` returns.
    pub(crate) log: &'a Log,
}

/// How a worker acquires.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Wait,
    Within(Duration),
    AtOnce,
}

/// A recipe with holds. At most `CAPACITY` parts can be held at a time.
///
/// Grants of what `acquire` returns are recorded by the run; `change` and `release` record what they do, in the [`Log`]: the end of a hold before
/// the call, and the beginning after it.
pub(crate) trait Holdable: Send + Sync + 'static {
    const NAME: &'static str;
    const CAPACITY: u32 = 1;
    /// Whether the next holder learns how the previous hold ended.
    const IS_MARKED: bool = false;
    /// Whether holders acquire in the order in which they asked.
    const IS_FAIR: bool = true;

    /// Whether an operator may delete its directories.
    const CAN_BE_WIPED: bool = true;

    type Guard: Send + Sync;

    /// Number of parts that a worker asks for.
    fn some_weight(random: &mut StdRng) -> u32 {
        let _ = random;
        1
    }

    fn acquire(
        client: &Client,
        ask: Ask<'_>,
    ) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send;

    /// All holds of a guard, which have different paths.
    fn holds(guard: &Self::Guard) -> Vec<&Hold>;

    /// Whether a worker can change a guard, or what it stands for, while it holds.
    const CAN_CHANGE: bool = false;

    /// Changes a guard, and records it; `None` if the holds have ended.
    fn change(
        client: &Client,
        worker: &mut Worker,
        guard: Self::Guard,
        log: &Log,
    ) -> impl Future<Output = Option<Self::Guard>> + Send {
        let _ = (client, worker, log);
        ready(Some(guard))
    }

    /// Resolves when the first hold is lost.
    fn lost(guard: &Self::Guard) -> impl Future<Output = ()> + Send {
        let all = Self::holds(guard).into_iter();
        let lost = select_all(all.map(|hold| Box::pin(hold.lost())));
        async { drop(lost.await) }
    }

    /// Releases all holds, and records it.
    fn release(guard: Self::Guard, log: &Log) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether a node may stay: crash marks do.
    fn may_stay(path: &str) -> bool {
        let _ = path;
        false
    }
}

/// A run of a recipe with holds.
#[derive(Debug)]
pub(crate) struct Holds<H> {
    tracks: Arc<Mutex<Tracks>>,
    recipe: std::marker::PhantomData<fn() -> H>,
}

impl<H> Clone for Holds<H> {
    fn clone(&self) -> Self {
        Self {
            tracks: Arc::clone(&self.tracks),
            recipe: std::marker::PhantomData,
        }
    }
}

impl<H: Holdable> Recipe for Holds<H> {
    const NAME: &'static str = H::NAME;
    const IS_FAIR: bool = H::IS_FAIR;

    fn new(_: &Plan) -> Self {
        Self {
            tracks: Arc::new(Mutex::new(Tracks::new::<H>())),
            recipe: std::marker::PhantomData,
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        match self.hold_once(worker, client).await? {
            (Round::Done, Some(lost)) => {
                // Others make the directory again, and join first.
                worker.pause().await;
                let limit = client.session_timeout();
                let mut again = pin!(self.hold_once(worker, client));
                // The lost guard is still in scope. Its node may exist, if no operator has deleted it.
                let ended = match timeout(limit, &mut again).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        drop(lost);
                        again.await
                    }
                };
                Ok(ended?.0)
            }
            (round, _) => Ok(round),
        }
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        let tracks = self.tracks.lock();
        let tracks = tracks.unwrap_or_else(PoisonError::into_inner);
        tracks.check(plan, history)
    }

    fn directories(&self) -> Vec<String> {
        let all = H::CAN_BE_WIPED.then(|| "/sim".to_owned());
        all.into_iter().collect()
    }

    fn may_stay(&self, path: &str) -> bool {
        H::may_stay(path)
    }
}

impl<H: Holdable> Holds<H> {
    /// Acquires, works and releases. If an operator may have deleted the node of a lost hold, its guard is returned.
    async fn hold_once(
        &self,
        worker: &mut Worker,
        client: &Client,
    ) -> Result<(Round, Option<H::Guard>), Gone> {
        let weight = H::some_weight(&mut worker.random);
        let log = Log::new(worker, &self.tracks, weight);
        let limit = worker.moment();
        // After the faults, everybody must get what it waits for.
        let way = worker.random.random_range(0..10) + if worker.is_calm() { 10 } else { 0 };
        let ask = |how| Ask {
            how,
            weight,
            log: &log,
        };
        let acquired = worker
            .unless_stopped(async {
                match way {
                    0 => H::acquire(client, ask(How::AtOnce)).await,
                    1 => H::acquire(client, ask(How::Within(limit))).await,
                    // Drops the future at an arbitrary point.
                    2 => match timeout(limit, H::acquire(client, ask(How::Wait))).await {
                        Ok(acquired) => acquired,
                        Err(_) => Ok(None),
                    },
                    _ => H::acquire(client, ask(How::Wait)).await,
                }
            })
            .await;
        if !matches!(acquired, Ok(Ok(Some(_)))) {
            // What was acquired so far was dropped at this moment.
            log.dropping();
        }
        match acquired? {
            Ok(Some(guard)) => {
                let lost = keep::<H>(worker, client, guard, &log).await;
                return Ok((Round::Done, lost.filter(|_| worker.has_operator)));
            }
            Ok(None) => {}
            Err(error) => worker.failed(&error),
        }
        worker.pause().await;
        Ok((Round::Failed, None))
    }
}

/// Works under a guard, and ends it in one of several ways. Returns a guard that is lost.
async fn keep<H: Holdable>(
    worker: &mut Worker,
    client: &Client,
    guard: H::Guard,
    log: &Log,
) -> Option<H::Guard> {
    for hold in H::holds(&guard) {
        log.granted(hold);
        log.write(hold);
    }
    let mut guard = guard;
    let mut is_lost = work::<H>(worker, client, &guard, log).await;
    if H::CAN_CHANGE && !is_lost && worker.random.random_bool(0.5) {
        guard = match H::change(client, worker, guard, log).await {
            Some(guard) => guard,
            None => {
                log.dropping();
                return None;
            }
        };
        is_lost = work::<H>(worker, client, &guard, log).await;
    }
    if is_lost || worker.random.random_ratio(1, 4) {
        log.dropping();
        return is_lost.then_some(guard);
    }
    if let Err(error) = H::release(guard, log).await {
        worker.failed(&error);
    }
    // If a release failed, the holds that were left were dropped at this moment.
    log.dropping();
    None
}

/// Returns whether a hold was lost meanwhile.
async fn work<H: Holdable>(
    worker: &mut Worker,
    client: &Client,
    guard: &H::Guard,
    log: &Log,
) -> bool {
    let is_lost = tokio::select! {
        biased;
        () = H::lost(guard) => true,
        () = worker.work_with(client) => false,
    };
    for hold in H::holds(guard) {
        if is_lost && !hold.is_held() {
            log.lost(hold);
        }
        // A worker whose hold is lost is careless: if another worker has written since, this is refused.
        log.write(hold);
    }
    is_lost
}
