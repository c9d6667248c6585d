//! Run-once tasks: each is done once, one worker at a time works on it, and none is forgotten.

use std::sync::{Arc, Mutex};

use bellwether::{Client, Error, ErrorKind, Task, Tasks};
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use rand::Rng as _;

use super::delivery_order::{Sorted, Taken};
use super::ledger::{ATTEMPTS_MAX, ItemEnd, Ledger, check, lock, note_end, note_put};
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

/// Workers add tasks and take them.
#[derive(Debug, Clone)]
pub(crate) struct Chores(Arc<Mutex<Ledger>>);

/// How many results are read at the end.
const RESULTS_MAX: usize = 100;

fn tasks(client: &Client) -> Tasks<String> {
    Tasks::new(client, "/sim/tasks").attempts_max(ATTEMPTS_MAX)
}

impl Chores {
    async fn add(&self, worker: &mut Worker, client: &Client) -> Round {
        let items = lock(&self.0).begin_put(vec![0]);
        let (_, name) = &items[0];
        let tasks = tasks(client);
        let mut added = tasks.add(name, name).await;
        if worker.random.random_ratio(1, 4) {
            // Adding it again is harmless.
            let again = tasks.add(name, name).await;
            added = match (added, again) {
                (Ok(_), Ok(true)) => {
                    worker.wrong(format!("{name} was added twice"));
                    Ok(false)
                }
                (Ok(_), _) => Ok(false),
                // The first try may have added it, whatever became of the second.
                (
                    unknown @ Err(Error {
                        kind: ErrorKind::OutcomeUnknown(_),
                        ..
                    }),
                    Err(_),
                ) => unknown,
                (Err(_), again) => again,
            };
        }
        note_put(worker, &self.0, &items, added.map(drop))
    }

    fn delivered(&self, task: &Task<String>) {
        let taken = Taken {
            token: task.token().number(),
            attempts: task.attempts(),
            begun: Stage::now(),
            got: Stage::now(),
            handle: 0,
            is_first: true,
            view: None,
            is_settled: false,
            returned: None,
        };
        lock(&self.0).delivered(task.name(), task.name().to_owned(), taken, None);
    }

    async fn perform(&self, worker: &mut Worker, client: &Client, task: Task<String>) {
        self.delivered(&task);
        let (name, token) = (task.name().to_owned(), task.token().number());
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
        // A worker whose claim is lost tries too: if another one has the task, it must be refused.
        match worker.random.random_range(0..12) {
            0..2 if !is_lost => drop(task),
            2..4 => match task.fail("not now").await {
                Ok(()) => lock(&self.0).given_back(&name, token),
                Err(Error {
                    kind: ErrorKind::NotHeld,
                    ..
                }) => {}
                Err(error) => worker.failed(&error),
            },
            4 => {
                lock(&self.0).doubt(&name, token, ItemEnd::Rejected);
                let ended = task.reject("never").await;
                note_end(worker, &self.0, &name, (token, ItemEnd::Rejected), ended);
            }
            _ => {
                lock(&self.0).doubt(&name, token, ItemEnd::Acked);
                let ended = task.done_with(token.to_string()).await;
                note_end(worker, &self.0, &name, (token, ItemEnd::Acked), ended);
            }
        }
    }

    /// Does the remaining tasks.
    async fn do_rest(&self, tasks: &Tasks<String>) -> Result<(), String> {
        loop {
            let taken = tasks.take().await;
            let taken = taken.map_err(|error| format!("no task at the end: {error}"))?;
            let Some(task) = taken else {
                return Ok(());
            };
            self.delivered(&task);
            let (name, token) = (task.name().to_owned(), task.token().number());
            let done = task.done_with(token.to_string()).await;
            done.map_err(|error| format!("{name} was not done at the end: {error}"))?;
            lock(&self.0).ended(&name, token, ItemEnd::Acked);
        }
    }

    /// Checks the counts, and some of the results: that of a task is the result of the worker that was told of its success.
    async fn check_done(&self, tasks: &Tasks<String>, dead: usize) -> Result<(), String> {
        let counts = tasks.counts().await;
        let counts = counts.map_err(|error| format!("no counts: {error}"))?;
        let (done, doubts) = lock(&self.0).done();
        let is_right = counts.open + counts.running == 0
            && counts.failed == dead
            && (done.len()..=done.len() + doubts).contains(&counts.done);
        if !is_right {
            let known = done.len();
            return Err(format!(
                "{counts:?}, but {known} to {} are done",
                known + doubts
            ));
        }
        for (name, token) in done.into_iter().rev().take(RESULTS_MAX) {
            let result = tasks.result(&name).await;
            let result = result.map_err(|error| format!("no result of {name}: {error}"))?;
            if result != Some(token.to_string().into_bytes()) {
                return Err(format!(
                    "{name} was done by claim {token}, its result is {result:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Recipe for Chores {
    const NAME: &'static str = "tasks";

    fn new(_: &Plan) -> Self {
        Self(Arc::new(Mutex::new(Ledger::new(Sorted::Not))))
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        // When the faults are over, each worker adds tasks until it gets one.
        let is_calm = worker.is_calm();
        if is_calm || worker.random.random_bool(0.5) {
            let added = self.add(worker, client).await;
            if added == Round::Failed || !is_calm {
                return Ok(added);
            }
        }
        match worker.unless_stopped(tasks(client).take()).await? {
            Ok(Some(task)) => {
                self.perform(worker, client, task).await;
                return Ok(Round::Done);
            }
            Ok(None) => {}
            Err(error) => worker.failed(&error),
        }
        worker.pause().await;
        Ok(Round::Failed)
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        check(plan, history, &self.0)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let tasks = tasks(client);
        self.do_rest(&tasks).await?;
        let letters = tasks.failed().await;
        let letters = letters.map_err(|error| format!("no failed tasks: {error}"))?;
        let letters = letters.into_iter().map(|letter| letter.id.to_string());
        let letters: Vec<String> = letters.collect();
        lock(&self.0).check_dead(&letters)?;
        self.check_done(&tasks, letters.len()).await?;
        lock(&self.0).check_end()
    }

    fn may_stay(&self, path: &str) -> bool {
        // The directories, and the records of finished tasks.
        let has_ended = |dir| path.starts_with(&format!("/sim/tasks/{dir}/"));
        path.matches('/').count() <= 3 || has_ended("done") || has_ended("dead")
    }
}
