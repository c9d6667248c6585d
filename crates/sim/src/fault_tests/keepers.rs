//! Workers that hold a lock each for the whole run.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bellwether::{Client, Lock};
use bellwether_testkit::History;

use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::run::run;
use crate::stage::Stage;
use crate::worker::{Gone, Phase, Worker};

/// Counts the connections that workers have had beyond the first.
#[derive(Debug, Clone, Default)]
struct Keepers(Arc<AtomicU64>);

thread_local! {
    static KEEPERS: RefCell<Keepers> = RefCell::default();
}

impl Recipe for Keepers {
    const NAME: &'static str = "keepers";

    fn new(_: &Plan) -> Self {
        let keepers = Self::default();
        KEEPERS.set(keepers.clone());
        keepers
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let lock = Lock::new(client, format!("/keepers/{}", worker.who));
        let guard = match worker.unless_stopped(lock.acquire()).await? {
            Ok(guard) => guard,
            Err(error) => {
                worker.failed(&error);
                return Ok(Round::Failed);
            }
        };
        let mut phase = worker.phase.clone();
        tokio::select! {
            biased;
            () = guard.lost() => worker.wrong(format!("lost at {}", Stage::now())),
            _ = phase.wait_for(|phase| *phase >= Phase::Calm) => {}
        }
        if !worker.is_stopped() {
            self.0
                .fetch_max(client.raw().connections() - 1, Ordering::Relaxed);
        }
        let _ = guard.release().await;
        Ok(Round::Done)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        Ok(())
    }

    fn may_stay(&self, _: &str) -> bool {
        true
    }
}

/// Runs a plan in which no hold may be lost. Returns how often a worker had to connect again at most.
pub(super) fn moved(plan: &Plan) -> u64 {
    assert_eq!(run::<Keepers>(plan).violation, None, "seed {}", plan.seed);
    KEEPERS.take().0.load(Ordering::Relaxed)
}
