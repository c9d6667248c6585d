//! Barriers: no worker passes while one is set; all members of a double barrier start and end a round together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::{Barrier, Client, DoubleBarrier, Error, zk};
use bellwether_testkit::History;
use bellwether_testkit::history::Moment;
use bellwether_testkit::history::gates::{Passage, check_gate};
use bellwether_testkit::history::rounds::{RoundStay, check_rounds};
use rand::Rng as _;
use tokio::time::timeout;

use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

/// Worker 0 sets the barrier and lifts it, the others wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<Mutex<Vec<(Moment, usize, Passage)>>>);

impl Gate {
    fn note(&self, who: usize, step: Passage) {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push((Stage::moment(), who, step));
    }

    async fn set_and_lift(&self, worker: &mut Worker, barrier: &Barrier) -> Result<(), Error> {
        barrier.set().await?;
        self.note(worker.who, Passage::Shut);
        worker.work().await;
        worker.work().await;
        self.note(worker.who, Passage::Opening);
        barrier.lift().await?;
        worker.pause().await;
        Ok(())
    }
}

impl Recipe for Gate {
    const NAME: &'static str = "barrier";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let barrier = Barrier::new(client, "/sim/barrier");
        let result = if worker.who == 0 {
            self.set_and_lift(worker, &barrier).await
        } else {
            self.note(worker.who, Passage::Waiting);
            let passed = worker.unless_stopped(barrier.wait()).await?;
            let step = match &passed {
                Ok(()) => Passage::Passed,
                Err(_) => Passage::Failed,
            };
            self.note(worker.who, step);
            worker.pause().await;
            passed
        };
        match result {
            Ok(()) => Ok(Round::Done),
            Err(error) => {
                worker.failed(&error);
                worker.pause().await;
                Ok(Round::Failed)
            }
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        check_gate(steps.iter().copied())
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let lifted = Barrier::new(client, "/sim/barrier").lift().await;
        lifted.map(drop).map_err(|error| error.to_string())
    }

    fn may_stay(&self, path: &str) -> bool {
        path == "/sim"
    }
}

const MEETINGS: &str = "/sim/meetings";
const MEMBERS: &str = "/sim/meetings/members";

/// All workers meet, round after round.
#[derive(Debug, Clone)]
pub(super) struct Meetings {
    stays: Arc<Mutex<Vec<RoundStay>>>,
    size: usize,
    /// The path of the last round, if no member saw it end.
    last: Arc<Mutex<Option<String>>>,
}

impl Meetings {
    fn stays(&self) -> MutexGuard<'_, Vec<RoundStay>> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, index: usize, what: impl FnOnce(&mut RoundStay, Moment)) {
        what(&mut self.stays()[index], Stage::moment());
    }
}

impl Recipe for Meetings {
    const NAME: &'static str = "double-barrier";

    fn new(plan: &Plan) -> Self {
        Self {
            stays: Arc::default(),
            last: Arc::default(),
            size: plan.workers.min(3),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let barrier = DoubleBarrier::new(client, MEETINGS, self.size);
        let index = {
            let mut stays = self.stays();
            let mut stay = RoundStay::begin(worker.who);
            stay.arrived = Stage::moment();
            stays.push(stay);
            stays.len() - 1
        };
        let gives_up = worker.random.random_ratio(1, 8) && !worker.is_calm();
        let limit = match gives_up {
            true => worker.moment(),
            false => Duration::from_secs(100_000),
        };
        let entered = worker.unless_stopped(timeout(limit, barrier.enter())).await;
        let inside = match entered {
            Ok(Ok(Ok(inside))) => inside,
            other => {
                self.note(index, |stay, now| stay.gave_up = Some(now));
                if let Ok(Err(error)) = other? {
                    worker.failed(&error);
                    worker.pause().await;
                }
                return Ok(Round::Failed);
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
            return Ok(Round::Done);
        }
        match worker.unless_stopped(inside.leave()).await? {
            Ok(()) => {
                self.note(index, |stay, now| stay.left = Some(now));
                Ok(Round::Done)
            }
            Err(error) => {
                worker.failed(&error);
                Ok(Round::Failed)
            }
        }
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

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let raw = client.raw();
        let data = match raw.get(MEETINGS).await {
            // No member has ever arrived.
            Err(zk::Error::NO_NODE) => return Ok(()),
            Err(error) => return Err(error.to_string()),
            Ok((data, _)) => String::from_utf8_lossy(&data).into_owned(),
        };
        let names = match raw.children(MEMBERS).await {
            Err(zk::Error::NO_NODE) => Vec::new(),
            names => names.map_err(|error| error.to_string())?,
        };
        // The round that the next member to arrive would end, and no older one.
        let ready: Vec<&str> = names
            .iter()
            .filter_map(|name| name.strip_prefix("ready-"))
            .collect();
        let generation = generation(&data);
        match ready.as_slice() {
            [] => {}
            [last] if generation.as_deref() == Some(*last) => {
                let path = format!("{MEMBERS}/ready-{last}");
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
            }
            _ => return Err(format!("rounds {ready:?} are left, in {data}")),
        }
        Ok(())
    }

    fn may_stay(&self, path: &str) -> bool {
        // The barrier itself keeps the count. The directory that the last round has left has had no member, so servers do not delete it.
        let kept = ["/sim", MEETINGS, MEMBERS];
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        kept.contains(&path) || last.as_deref() == Some(path)
    }
}

/// The number of the present round, as it is in names.
fn generation(data: &str) -> Option<String> {
    let (_, rest) = data.split_once("\"generation\":")?;
    Some(rest.chars().take_while(char::is_ascii_digit).collect())
}
