//! Barriers: no worker passes while one is set; all members of a double barrier start and end a round together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::error::BarrierError;
use bellwether::{Barrier, Client, DoubleBarrier};
use bellwether_testkit::History;
use bellwether_testkit::history::rounds::{Stay, check_rounds};
use bellwether_testkit::history::{Moment, What};
use rand::Rng as _;
use tokio::time::timeout;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

/// Worker 0 sets the barrier and lifts it, the others wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<Mutex<Passing>>);

#[derive(Debug, Default)]
struct Passing {
    /// From the return of `set` to the call of `lift`: it is certainly set.
    is_shut: bool,
    /// How often it may have been open.
    opened: u64,
    wrong: Option<String>,
}

impl Gate {
    fn passing(&self) -> MutexGuard<'_, Passing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opens(&self) {
        let mut passing = self.passing();
        passing.is_shut = false;
        passing.opened += 1;
    }

    /// A worker has passed. When it arrived the barrier was set, and had been opened `before` times.
    fn passed(&self, who: usize, before: u64) {
        let mut passing = self.passing();
        if passing.is_shut && passing.opened == before {
            passing.wrong = Some(format!("worker {who} passed a barrier that was set"));
        }
    }
}

impl Recipe for Gate {
    const NAME: &'static str = "barrier";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let barrier = Barrier::new(client, "/sim/barrier");
        let result = if worker.who == 0 {
            match barrier.set().await {
                Ok(_) => {
                    self.passing().is_shut = true;
                    worker.work().await;
                    worker.work().await;
                    self.opens();
                    let lifted = barrier.lift().await.map(drop);
                    worker.pause().await;
                    lifted
                }
                Err(error) => Err(error),
            }
        } else {
            let before = self.passing().opened;
            let was_shut = self.passing().is_shut;
            let passed = worker.unless_stopped(barrier.wait()).await?;
            if passed.is_ok() && was_shut {
                self.passed(worker.who, before);
            }
            worker.pause().await;
            passed
        };
        match result {
            Err(BarrierError::SessionEnded { .. } | BarrierError::NoSession { .. }) => Err(Gone),
            Err(error) => {
                worker.note(What::Failed(error.to_string()));
                worker.pause().await;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn killed(&self, who: usize) {
        if who == 0 {
            // The barrier stays set, and the worker lifts it in its next life.
            self.opens();
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        match &self.passing().wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let lifted = Barrier::new(client, "/sim/barrier").lift().await;
        lifted.map(drop).map_err(|error| error.to_string())
    }

    fn may_stay(&self, path: &str) -> bool {
        path == "/sim"
    }
}

/// All workers meet, round after round.
#[derive(Debug, Clone)]
pub(super) struct Meetings {
    stays: Arc<Mutex<Vec<Stay>>>,
    size: usize,
}

impl Meetings {
    fn stays(&self) -> MutexGuard<'_, Vec<Stay>> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, index: usize, what: impl FnOnce(&mut Stay, Moment)) {
        what(&mut self.stays()[index], Stage::moment());
    }
}

impl Recipe for Meetings {
    const NAME: &'static str = "double-barrier";

    fn new(plan: &Plan) -> Self {
        Self {
            stays: Arc::default(),
            size: plan.workers.min(3),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let barrier = DoubleBarrier::new(client, "/sim/meetings", self.size);
        let index = {
            let mut stays = self.stays();
            let mut stay = Stay::begin(worker.who);
            stay.arrived = Stage::moment();
            stays.push(stay);
            stays.len() - 1
        };
        let limit = match worker.random.random_ratio(1, 8) {
            true => worker.moment(),
            false => Duration::from_secs(100_000),
        };
        let entered = worker.unless_stopped(timeout(limit, barrier.enter())).await;
        let inside = match entered {
            Ok(Ok(Ok(inside))) => inside,
            other => {
                self.note(index, |stay, now| stay.gave_up = Some(now));
                if let Ok(Ok(Err(error))) = &other {
                    worker.note(What::Failed(error.to_string()));
                }
                return match other {
                    Err(Gone)
                    | Ok(Ok(Err(
                        BarrierError::SessionEnded { .. } | BarrierError::NoSession { .. },
                    ))) => Err(Gone),
                    _ => Ok(()),
                };
            }
        };
        let round = inside.round();
        self.note(index, |stay, now| stay.entered = Some((now, round)));
        tokio::select! {
            biased;
            () = inside.lost() => {}
            () = worker.work() => {}
        }
        self.note(index, |stay, now| stay.leaving = Some(now));
        if worker.random.random_ratio(1, 10) {
            drop(inside);
            return Ok(());
        }
        if let Ok(()) = worker.unless_stopped(inside.leave()).await?.as_ref() {
            self.note(index, |stay, now| stay.left = Some(now));
        }
        Ok(())
    }

    fn killed(&self, who: usize) {
        let now = Stage::moment();
        for stay in self.stays().iter_mut().filter(|stay| stay.who == who) {
            match stay.entered {
                None => stay.gave_up = stay.gave_up.or(Some(now)),
                Some(_) => stay.leaving = stay.leaving.or(Some(now)),
            }
        }
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        let mut stays = self.stays().clone();
        for stay in &mut stays {
            stay.excuse(
                history.events(),
                Duration::from_millis(plan.session_timeout),
            );
        }
        // A member that gave up while it was cut off counts until its session expires.
        let linger = Duration::from_millis(4 * plan.session_timeout);
        check_rounds(&stays, self.size, linger)
    }

    fn may_stay(&self, path: &str) -> bool {
        // The barrier itself, its directory, and the last round, if no member saw it end.
        path.matches('/').count() <= 3 || path.contains("/ready-")
    }
}
