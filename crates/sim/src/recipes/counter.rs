//! The counter: every acknowledged addition is made exactly once, and no other except those in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bellwether::error::StateError;
use bellwether::{Client, Counter};
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use rand::Rng as _;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::worker::{Gone, Worker};

#[derive(Debug, Clone, Default)]
pub(super) struct Sum(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    begun: AtomicI64,
    acknowledged: AtomicI64,
    /// Begun, and known not to be made.
    refused: AtomicI64,
}

impl Recipe for Sum {
    const NAME: &'static str = "counter";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let counter = Counter::new(client, "/sim/counter");
        // Several in a row, so that a fault hits one in progress. Not many: a worker on a lagging server loses every race against workers
        // that write without a pause.
        for _ in 0..worker.random.random_range(1..=2) {
            self.0.begun.fetch_add(1, Ordering::Relaxed);
            match counter.add(1).await {
                Ok(_) => self.0.acknowledged.fetch_add(1, Ordering::Relaxed),
                Err(StateError::OutcomeUnknown { .. }) => break,
                Err(error) => {
                    worker.note(What::Failed(error.to_string()));
                    self.0.refused.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            };
        }
        worker.pause().await;
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(()),
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        Ok(())
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let sum = Counter::new(client, "/sim/counter").get().await;
        let sum = sum.map_err(|error| error.to_string())?;
        let told = |count: &AtomicI64| count.load(Ordering::Relaxed);
        let least = told(&self.0.acknowledged);
        let most = told(&self.0.begun) - told(&self.0.refused);
        match (least..=most).contains(&sum) {
            true => Ok(()),
            false => Err(format!("the sum is {sum}, of {least} to {most} additions")),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        ["/sim", "/sim/counter"].contains(&path)
    }
}
