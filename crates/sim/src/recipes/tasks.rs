//! Run-once tasks: each is done once, one worker at a time works on it, and none is forgotten.

use std::sync::{Arc, Mutex};

use bellwether::queue::{SettleError, TakeError};
use bellwether::{Client, Task, Tasks};
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use rand::Rng as _;

use super::queue::{ATTEMPTS_MAX, Ledger, check, check_all, lock, note_put};
use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

/// Workers add tasks and take them.
#[derive(Debug, Clone)]
pub(super) struct Chores(Arc<Mutex<Ledger>>);

fn tasks(client: &Client) -> Tasks<String> {
    Tasks::new(client, "/sim/tasks").attempts_max(ATTEMPTS_MAX)
}

impl Chores {
    async fn add(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let name = lock(&self.0).begin_put(0);
        let tasks = tasks(client);
        let mut added = tasks.add(&name, &name).await;
        if worker.random.random_ratio(1, 4) {
            // Adding it again is harmless.
            added = tasks.add(&name, &name).await;
        }
        note_put(worker, &self.0, &name, added.map(drop))
    }

    async fn perform(&self, worker: &mut Worker, client: &Client, task: Task<String>) {
        let (name, token) = (task.name().to_owned(), task.token().number());
        lock(&self.0).delivered(&name, token, Stage::now());
        worker.note(What::Granted { token, weight: 1 });
        let is_lost = tokio::select! {
            biased;
            () = task.lost() => true,
            () = worker.work_with(client) => false,
        };
        worker.note(match is_lost {
            true => What::Lost { token },
            false => What::Releasing { token },
        });
        match worker.random.random_range(0..6) {
            0 if !is_lost => drop(task),
            1 if !is_lost => drop(task.fail("not now").await),
            // A worker whose claim is lost tries too: it must be refused.
            _ => {
                lock(&self.0).doubt(&name, token);
                match task.done().await {
                    Ok(()) => lock(&self.0).acked(&name, token),
                    Err(SettleError::NotClaimed { .. }) => lock(&self.0).refused(&name, token),
                    Err(error) => worker.note(What::Failed(error.to_string())),
                }
            }
        }
    }
}

impl Recipe for Chores {
    const NAME: &'static str = "tasks";

    fn new(_: &Plan) -> Self {
        Self(Arc::default())
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        if worker.random.random_bool(0.5) {
            return self.add(worker, client).await;
        }
        match worker.unless_stopped(tasks(client).take()).await? {
            Ok(Some(task)) => self.perform(worker, client, task).await,
            Ok(None) => worker.pause().await,
            Err(TakeError::SessionEnded { .. }) => return Err(Gone),
            Err(error) => {
                worker.note(What::Failed(error.to_string()));
                worker.pause().await;
            }
        }
        Ok(())
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        check(plan, history, &self.0)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        while let Ok(Some(task)) = tasks(client).take().await {
            let (name, token) = (task.name().to_owned(), task.token().number());
            lock(&self.0).delivered(&name, token, Stage::now());
            if task.done().await.is_ok() {
                lock(&self.0).acked(&name, token);
            }
        }
        check_all(&self.0)
    }

    fn may_stay(&self, path: &str) -> bool {
        // The directories, and the records of finished tasks.
        path.matches('/').count() <= 3 || path.starts_with("/sim/tasks/done/")
    }
}
