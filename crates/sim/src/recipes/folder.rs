//! A configuration folder: updates are atomic and made once, and no reader goes back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::error::StateError;
use bellwether::{Client, ConfigFolder};
use bellwether_testkit::History;
use bellwether_testkit::history::What;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::worker::{Gone, Worker};

/// Two entries that every update raises together.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The highest number that each worker has read.
    highest: BTreeMap<usize, u64>,
    /// Updates that were begun, acknowledged, and known not to be made.
    begun: u64,
    acknowledged: u64,
    refused: u64,
    wrong: Option<String>,
}

fn folder(client: &Client) -> ConfigFolder {
    ConfigFolder::new(client, "/sim/folder")
}

fn number(entries: &BTreeMap<String, Vec<u8>>, name: &str) -> u64 {
    let text = entries
        .get(name)
        .map(|value| String::from_utf8_lossy(value));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Pairs {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, who: usize, entries: &BTreeMap<String, Vec<u8>>) {
        let (left, right) = (number(entries, "left"), number(entries, "right"));
        let mut seen = self.seen();
        if left != right {
            seen.wrong = Some(format!("worker {who} read {left} and {right}"));
        }
        let before = seen.highest.insert(who, left);
        if let Some(before) = before.filter(|before| *before > left) {
            seen.wrong = Some(format!("worker {who} read {left} after {before}"));
        }
    }
}

impl Recipe for Pairs {
    const NAME: &'static str = "config-folder";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let folder = folder(client);
        if let Ok(entries) = worker.unless_stopped(folder.get()).await? {
            self.saw(worker.who, &entries);
        }
        self.seen().begun += 1;
        let updated = folder.update(|entries| {
            for name in ["left", "right"] {
                let next = number(entries, name) + 1;
                entries.insert(name.to_owned(), next.to_string().into_bytes());
            }
        });
        match updated.await {
            Ok(entries) => {
                self.seen().acknowledged += 1;
                self.saw(worker.who, &entries);
            }
            Err(StateError::OutcomeUnknown { .. }) => {}
            Err(error) => {
                self.seen().refused += 1;
                worker.note(What::Failed(error.to_string()));
            }
        }
        worker.pause().await;
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(()),
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.seen().wrong.clone().map_or(Ok(()), Err)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let entries = folder(client).get().await;
        let entries = entries.map_err(|error| error.to_string())?;
        let made = number(&entries, "left");
        let seen = self.seen();
        match (seen.acknowledged..=seen.begun - seen.refused).contains(&made) {
            true => Ok(()),
            false => Err(format!(
                "{made} updates were made, of {} acknowledged and {} begun",
                seen.acknowledged, seen.begun
            )),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        path == "/sim" || path.starts_with("/sim/folder")
    }
}
