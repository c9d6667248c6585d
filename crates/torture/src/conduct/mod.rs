//! Conducts a run: rounds of faults, each followed by recovery, a stop of all workers, and a verdict.

mod crew;
mod finish;
mod round;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether::Client;
use bellwether_testkit::Op;
use tokio::process::Command;
use tokio::sync::watch;

use crate::recipe::Recipe;
use crate::report::{Figures, Outcome};
use crate::servers::Servers;
use crate::worker::Orders;

use self::crew::Spawn;
use self::round::Round;

/// Time of faults in one round. Its records are checked and dropped after it.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// Parameters of a run.
pub struct Torture {
    /// The recipes to put to the test.
    pub recipes: Vec<Recipe>,
    /// The number of worker processes, at least three.
    pub workers: usize,
    /// How long faults happen.
    pub time: Duration,
    /// The seed of the first round; each round has the next one.
    pub seed: u64,
    /// Path below which all rounds have their nodes.
    pub path: String,
    /// The servers.
    pub servers: Servers,
    /// Whether workers and their connections are disturbed.
    pub faults: bool,
    /// Operations that are hidden from workers, as on older servers and other implementations.
    pub without: Vec<Op>,
    /// A folder for the histories and the report.
    pub report: Option<PathBuf>,
    spawn: Spawn,
}

impl fmt::Debug for Torture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Torture")
            .field("recipes", &self.recipes)
            .field("workers", &self.workers)
            .field("time", &self.time)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Progress notice for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Notice {
    Begins { seed: u64, faults: Duration },
    Running { left: Duration, records: usize },
    Recovers,
    Checked { records: usize, is_right: bool },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begins { seed, faults } => {
                write!(f, "seed {seed}: faults for {:.0} s", faults.as_secs_f64())
            }
            Self::Running { left, records } => {
                write!(f, "{records} records, {:.0} s to go", left.as_secs_f64())
            }
            Self::Recovers => f.write_str("no more faults; every worker must make progress again"),
            Self::Checked { records, is_right } => match is_right {
                true => write!(f, "checked {records} records: right"),
                false => write!(f, "checked {records} records: wrong"),
            },
        }
    }
}

impl Torture {
    /// A run of all recipes. `spawn` returns the command of a worker process with these orders; see [`work`](crate::work).
    pub fn new(
        servers: Servers,
        spawn: impl Fn(&Orders) -> Command + Send + Sync + 'static,
    ) -> Self {
        Self {
            recipes: Recipe::ALL.to_vec(),
            workers: 4,
            time: Duration::from_secs(60),
            seed: 0,
            path: "/torture".into(),
            servers,
            faults: true,
            without: Vec::new(),
            report: None,
            spawn: Box::new(spawn),
        }
    }

    /// Runs to the end, or until `stop` is true: then it ends early, and checks the records so far. `open` opens a session without any
    /// faults: to the given servers, or to those of the user.
    ///
    /// # Errors
    ///
    /// If processes do not start, servers are not reachable, or the report cannot be written.
    pub async fn run(
        mut self,
        open: impl AsyncFn(Option<String>) -> Result<Client>,
        stop: watch::Receiver<bool>,
        mut notice: impl FnMut(Notice),
    ) -> Result<Outcome> {
        let end = Instant::now() + self.time;
        let mut outcome = Outcome {
            figures: Figures::default(),
            violations: Vec::new(),
        };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let client = open(self.servers.own()).await?;
            let mut round = Round {
                faults_for: left.min(ROUND_MAX),
                torture: &mut self,
                client: &client,
                stop: stop.clone(),
                notice: &mut notice,
            };
            let checked = round.play().await?;
            outcome.figures.add(&checked.figures);
            outcome.violations = checked.violations;
            client.close().await;
            let is_over = Instant::now() >= end || *stop.borrow();
            if is_over || !outcome.is_right() {
                if let Some(folder) = &self.report {
                    crate::report::write(folder, &outcome, &checked.records)?;
                }
                return Ok(outcome);
            }
            self.seed += 1;
        }
    }
}
