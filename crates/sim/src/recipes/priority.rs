//! The priority queue: nothing is lost, doubled, or delivered after its acknowledgement, whatever the ranks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::{Client, PriorityQueue};
use bellwether_testkit::History;
use rand::Rng as _;

use super::queue::{ATTEMPTS_MAX, Ledger, check, check_all, lock, note_put, note_take, settle};
use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::worker::{Gone, Worker};

/// Items with one of three priorities.
#[derive(Debug, Clone)]
pub(super) struct Ranked(Arc<Mutex<Ledger>>);

fn queue(client: &Client) -> PriorityQueue<String> {
    PriorityQueue::new(client, "/sim/priorities").attempts_max(ATTEMPTS_MAX)
}

impl Recipe for Ranked {
    const NAME: &'static str = "priority-queue";

    fn new(_: &Plan) -> Self {
        Self(Arc::default())
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let queue = queue(client);
        if worker.random.random_bool(0.5) {
            let item = lock(&self.0).begin_put(0);
            let priority = worker.random.random_range(0..3);
            let put = queue.put(priority, &item).await.map(drop);
            return note_put(worker, &self.0, &item, put);
        }
        let limit = worker.moment();
        let taken = worker.unless_stopped(queue.take_timeout(limit)).await?;
        note_take(worker, client, &self.0, "/sim/priorities/claims", taken).await
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        check(plan, history, &self.0)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let queue = queue(client);
        // By then claims of expired sessions are gone.
        let limit = Duration::from_secs(60);
        while let Ok(claim) = queue.take_timeout(limit).await {
            settle(claim, &self.0).await;
        }
        check_all(&self.0)
    }

    fn may_stay(&self, path: &str) -> bool {
        path.matches('/').count() <= 3 && !path.contains("item-")
    }
}
