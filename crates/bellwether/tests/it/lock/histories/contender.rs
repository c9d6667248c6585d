//! A process that acquires a hold repeatedly, and reports on stderr what it does.
//!
//! It is this test binary, started again for one test.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use bellwether::{ErrorKind, connect};
use bellwether_testkit::FencedStore;
use bellwether_testkit::history::{Event, Pulse, What};
use bellwether_torture::Recipe;
use bellwether_torture::record::Record;
use bellwether_torture::workload::held::Held;
use bellwether_torture::workload::holds::hold_once;
use bellwether_torture::workload::{Phase, Sink, Worker};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::watch;

use crate::support::storm::SESSION_TIMEOUT;

/// Orders for a contender.
pub(super) struct Orders {
    pub(super) who: usize,
    pub(super) recipe: Held,
    pub(super) seed: u64,
    pub(super) address: String,
    pub(super) store: PathBuf,
}

impl Orders {
    /// As environment variables.
    pub(super) fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("CONTENDER", self.who.to_string()),
            ("CONTENDER_RECIPE", Recipe::Held(self.recipe).to_string()),
            ("CONTENDER_SEED", self.seed.to_string()),
            ("CONTENDER_ADDRESS", self.address.clone()),
            ("CONTENDER_STORE", self.store.display().to_string()),
        ]
    }

    /// The orders of this process, if it is a contender.
    fn own() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        Some(Self {
            who: variable("CONTENDER")?.parse().ok()?,
            recipe: match variable("CONTENDER_RECIPE")?.parse() {
                Ok(Recipe::Held(held)) => held,
                _ => return None,
            },
            seed: variable("CONTENDER_SEED")?.parse().ok()?,
            address: variable("CONTENDER_ADDRESS")?,
            store: variable("CONTENDER_STORE")?.into(),
        })
    }
}

/// Arguments that make this binary a contender.
pub(super) fn arguments() -> [String; 4] {
    let (_, module) = module_path!().split_once("::").unwrap();
    [
        format!("{module}::contend"),
        "--exact".into(),
        "--ignored".into(),
        "--nocapture".into(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "not a test, but the process that the others start"]
async fn contend() {
    let Some(orders) = Orders::own() else {
        return;
    };
    let who = orders.who;
    let _pulse = Pulse::start(move |since| tell(&Event::now(who, What::Stalled { since })));
    let (told, stopped) = watch::channel(Phase::Faults);
    std::thread::spawn(move || {
        // Ends with its parent, however that ended.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.send_replace(Phase::End);
    });
    let sink: Sink = Arc::new(move |at, did| {
        let record = Record {
            at,
            who,
            recipe: None,
            did,
        };
        tell(&record.event().expect("a holder records events of holds"));
    });
    let worker = Worker {
        who,
        generation: 0,
        workers: 1,
        random: StdRng::seed_from_u64(orders.seed),
        path: path(orders.recipe),
        store: orders.store,
        sink,
        phase: stopped.clone(),
    };
    run(worker, orders.recipe, &orders.address, stopped).await;
}

/// Holds repeatedly, one session after the other.
async fn run(mut worker: Worker, recipe: Held, address: &str, stopped: watch::Receiver<Phase>) {
    let mut store = FencedStore::open(&worker.store).unwrap();
    let is_stopped = || *stopped.borrow() == Phase::End;
    while !is_stopped() {
        let session = connect(address).session_timeout(SESSION_TIMEOUT);
        let client = match session.await {
            Ok(client) => client,
            Err(error) => {
                worker.note_hold(What::Failed(error.to_string()));
                continue;
            }
        };
        let mut has_ended = false;
        while !is_stopped() && !has_ended {
            if let Err(error) = hold_once(&mut worker, recipe, &client, &mut store).await {
                worker.note_hold(What::Failed(error.to_string()));
                has_ended = matches!(error.kind, ErrorKind::SessionEnded);
            }
        }
        if !has_ended {
            client.close().await;
        }
    }
}

/// The path that all contend for.
pub(super) fn path(recipe: Held) -> String {
    format!("/histories/{recipe:?}")
}

/// Prints a whole line at once, from any thread.
fn tell(event: &Event) {
    let line = serde_json::to_string(event).unwrap() + "\n";
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
