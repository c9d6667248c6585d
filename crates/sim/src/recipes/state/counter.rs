//! The counter: every acknowledged addition is made exactly once, and no other except those in doubt. Each has a sum of its own, in the order of
//! time, and no reader goes back. A value that is there can be compared and set, also through a server that lags.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::{Client, Counter, Error, ErrorKind};
use bellwether_testkit::History;
use rand::Rng as _;

use super::catch_up::catch_up;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::worker::{Gone, Worker};

const PATH: &str = "/sim/counter";

/// Counters that one worker at a time changes, so that the value is known.
const BATONS: &str = "/sim/baton";

#[derive(Debug, Clone, Default)]
pub(crate) struct CounterSum(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    begun: i64,
    /// Begun, and known not to be made.
    refused: i64,
    /// The sums of acknowledged additions.
    sums: BTreeSet<i64>,
    /// The highest value that each worker has read.
    read: BTreeMap<usize, i64>,
    baton: Baton,
    wrong: Option<String>,
}

/// A counter whose value is known: workers change it in turn.
#[derive(Debug, Default)]
struct Baton {
    number: usize,
    value: i64,
    changed_by: Option<usize>,
}

impl Baton {
    fn path(&self) -> String {
        format!("{BATONS}{}", self.number)
    }

    /// Its value is not known any more: the next one.
    fn lose(&mut self) {
        *self = Self {
            number: self.number + 1,
            ..Self::default()
        };
    }
}

impl Told {
    fn highest(&self) -> i64 {
        self.sums.last().copied().unwrap_or(0)
    }

    /// How many additions may have been made at most.
    fn most(&self) -> i64 {
        self.begun - self.refused
    }

    /// An addition was acknowledged. `before` was the highest sum when it began.
    fn added(&mut self, who: usize, before: i64, sum: i64) {
        if !self.sums.insert(sum) {
            self.wrong(format!("worker {who} got the sum {sum}, as another did"));
        }
        if sum <= before || sum > self.most() {
            let most = self.most();
            self.wrong(format!(
                "worker {who} got the sum {sum} after {before}, of {most} at most"
            ));
        }
    }

    /// A worker has read the value. It was `least` at least when it began.
    fn read(&mut self, who: usize, least: i64, value: i64) {
        let last = self.read.insert(who, value).unwrap_or(0);
        if value < last.max(least) || value > self.most() {
            let most = self.most();
            self.wrong(format!(
                "worker {who} read {value} after {last}, of {least} to {most}"
            ));
        }
    }

    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

impl CounterSum {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the value. A worker reads no lower value than before, and behind a write none from before the call.
    async fn read(
        &self,
        worker: &mut Worker,
        client: &Client,
        counter: &Counter,
    ) -> Result<(), Error> {
        let (highest, session) = (self.told().highest(), client.session_id());
        let is_behind = worker.random.random_bool(0.5) && catch_up(&client.raw()).await;
        let value = counter.get().await?;
        let least = match is_behind && client.session_id() == session {
            true => highest,
            false => 0,
        };
        self.told().read(worker.who, least, value);
        Ok(())
    }

    async fn add(&self, worker: &Worker, counter: &Counter) -> Result<(), Error> {
        let before = {
            let mut told = self.told();
            told.begun += 1;
            told.highest()
        };
        let added = counter.add(1).await;
        let mut told = self.told();
        match &added {
            Ok(sum) => told.added(worker.who, before, *sum),
            // It may have been made.
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            }) => {}
            Err(_) => told.refused += 1,
        }
        added.map(drop)
    }

    /// Changes a counter that no other worker changes at this time.
    async fn pass_on(&self, who: usize, client: &Client) -> Result<(), Error> {
        let (counter, value) = {
            let baton = &mut self.told().baton;
            if baton.changed_by.is_some() {
                return Ok(());
            }
            baton.changed_by = Some(who);
            (Counter::new(client, baton.path()), baton.value)
        };
        let set = counter.compare_and_set(value, value + 1).await;
        let mut told = self.told();
        told.baton.changed_by = None;
        match &set {
            Ok(true) => told.baton.value += 1,
            Ok(false) => told.wrong(format!(
                "worker {who} could not set {}, which was {value}",
                counter.path()
            )),
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            }) => told.baton.lose(),
            Err(_) => {}
        }
        set.map(drop)
    }
}

impl Recipe for CounterSum {
    const NAME: &'static str = "counter";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let counter = Counter::new(client, PATH);
        // Several in a row, so that a fault hits one in progress. Not many: a worker on a lagging server loses every race against workers
        // that write without a pause.
        let mut ended = Round::Done;
        for _ in 0..worker.random.random_range(1..=2) {
            // Before a write of its own: behind it, a server does not lag.
            let mut used = match worker.random.random_bool(0.5) {
                true => self.pass_on(worker.who, client).await,
                false => Ok(()),
            };
            if used.is_ok() {
                used = self.add(worker, &counter).await;
            }
            if used.is_ok() && worker.random.random_ratio(1, 3) {
                used = self.read(worker, client, &counter).await;
            }
            if let Err(error) = used {
                worker.failed(&error);
                ended = Round::Failed;
                break;
            }
        }
        worker.pause().await;
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(ended),
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.told().wrong.clone().map_or(Ok(()), Err)
    }

    fn killed(&self, who: usize) {
        let baton = &mut self.told().baton;
        if baton.changed_by == Some(who) {
            baton.lose();
        }
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let sum = Counter::new(client, PATH).get().await;
        let sum = sum.map_err(|error| error.to_string())?;
        let told = self.told();
        let (least, most) = (told.sums.len(), told.most());
        let least = i64::try_from(least).unwrap_or(i64::MAX).max(told.highest());
        match (least..=most).contains(&sum) {
            true => Ok(()),
            false => Err(format!("the sum is {sum}, of {least} to {most} additions")),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        ["/sim", PATH].contains(&path) || path.starts_with(BATONS)
    }
}
