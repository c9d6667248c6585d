//! A worker process: one session, and one task for each recipe.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether::Client;
use bellwether_testkit::history::{Moment, Pulse, What};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::recipe::Recipe;
use crate::record::{Did, Record};
use crate::workload::{Phase, Sink, Worker};

/// Time limit for closing a session. After that it expires by itself.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The line on stdin that ends the faults. The end of stdin ends the run.
pub(crate) const RECOVERY: &str = "recovery";

/// Orders for a worker process. Its parent passes them on as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// The number of the worker.
    pub who: usize,
    /// Number of earlier processes with this worker number.
    pub generation: u32,
    /// The number of workers.
    pub workers: usize,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The recipes to use.
    pub recipes: Vec<Recipe>,
    /// Path below which all recipes have their nodes.
    pub path: String,
    /// A folder that all workers share.
    pub folder: PathBuf,
    /// Servers to connect to, if other than the user's.
    pub servers: Option<String>,
}

impl Orders {
    /// The path of a recipe.
    pub(crate) fn path_of(&self, recipe: Recipe) -> String {
        format!("{}/{recipe}", self.path)
    }
}

/// Works as ordered until stdin ends. Prints one [`Record`] per line to stdout.
///
/// # Errors
///
/// If the process cannot be set up. Later failures are recorded.
pub async fn work(orders: Orders, open: impl AsyncFn() -> Result<Client>) -> Result<()> {
    // If its parent dies, a process that is stopped at that moment must not stay.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the parent")?;
    let who = orders.who;
    let _pulse = Pulse::start(move |since| {
        print(&Record {
            at: Moment::now(),
            who,
            recipe: None,
            did: Did::Hold(What::Stalled { since }),
        });
    });
    let phase = listen();
    let mut random = StdRng::seed_from_u64(
        orders.seed ^ (who as u64) << 32 ^ u64::from(orders.generation) << 48,
    );
    let Some(client) = connect(open, who, phase.clone()).await else {
        return Ok(());
    };
    let mut tasks = JoinSet::new();
    for &recipe in &orders.recipes {
        let worker = Worker {
            who,
            generation: orders.generation,
            workers: orders.workers,
            random: StdRng::seed_from_u64(random.random()),
            path: orders.path_of(recipe),
            store: orders.folder.join(recipe.name()),
            sink: sink(who, recipe),
            phase: phase.clone(),
        };
        tasks.spawn(worker.run(recipe, client.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a workload failed")?;
    }
    // Otherwise the servers expire it.
    let _ = timeout(CLOSE_MAX, client.close()).await;
    Ok(())
}

/// Opens a session, without a time limit; `None` if the run ends first.
async fn connect(
    open: impl AsyncFn() -> Result<Client>,
    who: usize,
    mut phase: watch::Receiver<Phase>,
) -> Option<Client> {
    let opened = async {
        loop {
            match open().await {
                Ok(client) => return client,
                Err(error) => {
                    print(&Record {
                        at: Moment::now(),
                        who,
                        recipe: None,
                        did: Did::Hold(What::Failed(format!("{error:#}"))),
                    });
                    // Even if a server refuses at once, the end of the run is noticed.
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    tokio::select! {
        client = opened => Some(client),
        _ = phase.wait_for(|phase| *phase == Phase::End) => None,
    }
}

fn sink(who: usize, recipe: Recipe) -> Sink {
    Arc::new(move |at, did| {
        print(&Record {
            at,
            who,
            recipe: Some(recipe),
            did,
        });
    })
}

/// Prints a whole line at once, from any thread. A process without a reader is useless, so it exits.
fn print(record: &Record) {
    let mut line = serde_json::to_vec(record).expect("a record is plain data");
    line.push(b'\n');
    if std::io::stdout().write_all(&line).is_err() {
        std::process::exit(1);
    }
}

/// Follows the orders on stdin, on a thread.
fn listen() -> watch::Receiver<Phase> {
    let (told, phase) = watch::channel(Phase::Faults);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == RECOVERY {
                told.send_replace(Phase::Recovery);
            }
        }
        told.send_replace(Phase::End);
    });
    phase
}
