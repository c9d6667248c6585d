//! Workloads of the workers: each uses one recipe repeatedly, and records it.

pub mod barriers;
pub mod copies;
pub mod counter;
pub mod held;
pub mod holds;
pub mod items;
pub mod members;
pub mod shelf;
pub mod transactions;
pub mod values;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellwether::Client;
use bellwether::zk::MultiError;
use bellwether_testkit::history::{Moment, What};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;

use crate::recipe::Recipe;
use crate::record::Did;

/// The longest work under a hold or on an item, and the longest pause.
const MOMENT_MAX: Duration = Duration::from_millis(30);

/// Phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Faults happen.
    Faults,
    /// No more faults, and no new work that must be finished.
    Recovery,
    /// All workers stop.
    End,
}

/// Receives the records of a worker.
pub type Sink = Arc<dyn Fn(Moment, Did) + Send + Sync>;

/// A worker in one recipe.
#[derive(Clone)]
pub struct Worker {
    /// Its number.
    pub who: usize,
    /// Number of earlier processes with this worker number.
    pub generation: u32,
    /// The number of workers.
    pub workers: usize,
    /// Its random numbers.
    pub random: StdRng,
    /// The path of the recipe.
    pub path: String,
    /// File for a store that the recipe guards.
    pub store: PathBuf,
    /// Receives its records.
    pub sink: Sink,
    /// Phase of the run.
    pub phase: watch::Receiver<Phase>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("who", &self.who)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Uses a recipe until the run ends.
    pub async fn run(self, recipe: Recipe, client: Client) {
        match recipe {
            Recipe::Held(held) => holds::run(self, held, &client).await,
            Recipe::Shelf(shelf) => items::run(self, shelf, &client).await,
            Recipe::Counter => counter::run(self, &client).await,
            Recipe::Barrier => barriers::run_gate(self, &client).await,
            Recipe::DoubleBarrier => barriers::run_meetings(self, &client).await,
            Recipe::TwoPhase => transactions::run(self, &client).await,
            Recipe::FencedWrites => values::run_fenced(self, &client).await,
            Recipe::Config => values::run_config(self, &client).await,
            Recipe::Group => members::run(self, &client).await,
            Recipe::Cache => copies::run(self, &client).await,
        }
    }

    /// The same worker with other random numbers, for a second task.
    fn beside(&mut self) -> Self {
        Self {
            random: StdRng::seed_from_u64(self.random.random()),
            ..self.clone()
        }
    }

    /// A value that no worker writes twice.
    fn value(&self, number: u64) -> String {
        format!("{}.{}.{number}", self.who, self.generation)
    }

    /// Records what it does, now.
    pub fn note(&self, did: Did) {
        (self.sink)(Moment::now(), did);
    }

    /// Records an event of a hold.
    pub fn note_hold(&self, what: What) {
        self.note(Did::Hold(what));
    }

    /// Records that a call failed, and pauses, so that calls that fail at once do not spin.
    async fn failed(&mut self, error: &(dyn fmt::Display + Sync)) {
        self.note_hold(What::Failed(error.to_string()));
        self.pause().await;
    }

    /// A random duration up to the maximum.
    fn moment(&mut self) -> Duration {
        MOMENT_MAX.mul_f64(self.random.random())
    }

    /// Works or rests for some time.
    async fn pause(&mut self) {
        let time = self.moment();
        rest(time).await;
    }

    /// Phase of the run.
    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether the run is over.
    fn is_stopped(&self) -> bool {
        self.phase() == Phase::End
    }

    /// Resolves when the run is over.
    fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.phase.clone();
        async move {
            // An error means that the sender is gone, which ends the run too.
            let _ = phase.wait_for(|phase| *phase == Phase::End).await;
        }
    }

    /// Awaits a future; `None` if the run ends first.
    async fn unless_stopped<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            value = future => Some(value),
            () = self.stopped() => None,
        }
    }
}

/// Waits for an answer of a quorum: what this session reads afterwards is no older than that. A sync may be answered by a leader that does not
/// know of its successor yet. Returns whether there was an answer.
async fn catch_up(client: &Client) -> bool {
    let raw = client.raw();
    let mut check = raw.new_multi();
    check.check("/", None);
    matches!(
        check.commit().await,
        Ok(_) | Err(MultiError::Refused { .. })
    )
}

#[expect(clippy::disallowed_methods, reason = "stands for work")]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
