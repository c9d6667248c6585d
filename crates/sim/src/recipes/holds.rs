//! Common part of locks, permits and leaderships: acquire in one of several ways, work, release in one of several ways.

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether::error::{AcquireError, ReleaseError};
use bellwether::hold::Previous;
use bellwether::{Client, FencingToken, Hold};
use bellwether_testkit::History;
use bellwether_testkit::history::{
    What, check_crash_marks, check_fencing, check_holds, check_order,
};
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::time::timeout;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stage::hold_terms;
use crate::worker::{Gone, Worker};

/// How a worker acquires.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask {
    Wait,
    Within(Duration),
    AtOnce,
}

/// A recipe with holds. At most `CAPACITY` parts can be held at a time.
pub(super) trait Holdable: Send + Sync + 'static {
    const NAME: &'static str;
    const CAPACITY: u32 = 1;
    /// Whether the next holder learns how the previous hold ended.
    const IS_MARKED: bool = false;
    /// Whether holders acquire in the order in which they asked.
    const IS_FAIR: bool = true;

    type Guard: Send + Sync;

    /// Number of parts that a worker asks for.
    fn some_weight(random: &mut StdRng) -> u32 {
        let _ = random;
        1
    }

    fn acquire(
        client: &Client,
        ask: Ask,
        weight: u32,
    ) -> impl Future<Output = Result<Option<Self::Guard>, AcquireError>> + Send;

    fn hold(guard: &Self::Guard) -> &Hold;

    fn lost(guard: &Self::Guard) -> impl Future<Output = ()> + Send {
        Self::hold(guard).lost()
    }

    fn release(guard: Self::Guard) -> impl Future<Output = Result<(), ReleaseError>> + Send;

    /// Whether a node may stay: crash marks do.
    fn may_stay(path: &str) -> bool {
        let _ = path;
        false
    }
}

/// A run of a recipe with holds.
#[derive(Debug)]
pub(super) struct Holds<H>(std::marker::PhantomData<fn() -> H>);

impl<H> Clone for Holds<H> {
    fn clone(&self) -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<H: Holdable> Recipe for Holds<H> {
    const NAME: &'static str = H::NAME;
    const IS_FAIR: bool = H::IS_FAIR;

    fn new(_: &Plan) -> Self {
        Self(std::marker::PhantomData)
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        worker.note(What::Asked);
        let weight = H::some_weight(&mut worker.random);
        let limit = worker.moment();
        let way = worker.random.random_range(0..10);
        let acquired = worker
            .unless_stopped(async {
                match way {
                    0 => H::acquire(client, Ask::AtOnce, weight).await,
                    1 => H::acquire(client, Ask::Within(limit), weight).await,
                    // Drops the future at an arbitrary point.
                    2 => match timeout(limit, H::acquire(client, Ask::Wait, weight)).await {
                        Ok(acquired) => acquired,
                        Err(_) => Ok(None),
                    },
                    _ => H::acquire(client, Ask::Wait, weight).await,
                }
            })
            .await?;
        match acquired {
            Ok(Some(guard)) => keep::<H>(worker, client, guard, weight).await,
            Ok(None) | Err(AcquireError::TimedOut { .. }) => worker.pause().await,
            Err(AcquireError::SessionEnded { .. } | AcquireError::NoSession { .. }) => {
                return Err(Gone);
            }
            Err(error) => {
                worker.note(What::Failed(error.to_string()));
                worker.pause().await;
            }
        }
        Ok(())
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        let terms = hold_terms(plan, H::CAPACITY);
        let mut verdict = check_holds(history, &terms);
        if H::IS_FAIR {
            verdict = verdict.and_then(|()| check_order(history, &terms));
        }
        verdict = verdict.and_then(|()| check_fencing(history, &terms));
        if H::IS_MARKED {
            verdict = verdict.and_then(|()| check_crash_marks(history));
        }
        verdict.map_err(|violation| violation.to_string())?;
        check_belief(history)
    }

    fn may_stay(&self, path: &str) -> bool {
        H::may_stay(path)
    }
}

/// Checks that no worker relied on a hold that was over: `lost` compares clocks when it is polled, so a worker that takes a step is the last
/// one that the store has seen, even after a pause.
fn check_belief(history: &History) -> Result<(), String> {
    let mut lost = BTreeSet::new();
    for event in history.events() {
        match event.what {
            What::Lost { token } => drop(lost.insert(token)),
            What::Wrote {
                token,
                accepted: false,
            } if !lost.contains(&token) => {
                return Err(format!(
                    "worker {} wrote under the hold {token}, which was over and not reported as lost",
                    event.who
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn keep<H: Holdable>(worker: &mut Worker, client: &Client, guard: H::Guard, weight: u32) {
    let token = H::hold(&guard).token().number();
    worker.note(What::Granted { token, weight });
    if H::IS_MARKED {
        let crashed = match H::hold(&guard).previous() {
            Previous::Crashed(crash) => crash.token.map(FencingToken::number),
            _ => None,
        };
        worker.note(What::Found { token, crashed });
    }
    // Only an exclusive holder can be identified by its token.
    let is_alone = weight == H::CAPACITY;
    let write = |worker: &Worker| {
        if is_alone {
            worker.write_fenced(token);
        }
    };
    write(worker);
    let is_lost = tokio::select! {
        biased;
        () = H::lost(&guard) => true,
        () = worker.work_with(client) => false,
    };
    if is_lost {
        worker.note(What::Lost { token });
        // A careless worker: if another worker has written since, this is refused.
        return write(worker);
    }
    write(worker);
    if worker.random.random_ratio(1, 4) {
        worker.note(What::Dropping { token });
        return drop(guard);
    }
    worker.note(What::Releasing { token });
    match H::release(guard).await {
        Ok(()) => worker.note(What::Released { token }),
        Err(error) => worker.note(What::Failed(error.to_string())),
    }
}
