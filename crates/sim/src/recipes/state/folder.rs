//! A configuration folder: updates are atomic and made once, and no reader goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::{Client, ConfigFolder, Error, ErrorKind};
use bellwether_testkit::History;
use rand::Rng as _;

use super::catch_up::catch_up;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::worker::{Gone, Worker};

/// Two entries that every update raises together, and one that exists while they are odd.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The highest number that each worker has read.
    highest: BTreeMap<usize, u64>,
    /// Updates that were begun, and known not to be made.
    begun: u64,
    refused: u64,
    /// The numbers that acknowledged updates have written.
    made: BTreeSet<u64>,
    wrong: Option<String>,
}

type Entries = BTreeMap<String, Vec<u8>>;

fn folder(client: &Client) -> ConfigFolder {
    ConfigFolder::new(client, "/sim/folder")
}

/// The number of an entry, 0 if there is none.
fn number(entries: &Entries, name: &str) -> Option<u64> {
    match entries.get(name) {
        None => Some(0),
        Some(value) => std::str::from_utf8(value).ok()?.parse().ok(),
    }
}

/// The entries after an update.
fn raise(entries: &mut Entries) {
    for name in ["left", "right"] {
        let next = number(entries, name).unwrap_or(0) + 1;
        entries.insert(name.to_owned(), next.to_string().into_bytes());
    }
    match entries.remove("odd") {
        Some(_) => {}
        None => drop(entries.insert("odd".to_owned(), Vec::new())),
    }
}

impl Seen {
    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn newest(&self) -> u64 {
        self.made.last().copied().unwrap_or(0)
    }

    /// A worker has seen all entries, after `least` updates at least. Returns their number.
    fn saw(&mut self, who: usize, least: u64, entries: &Entries) -> u64 {
        let (left, right) = (number(entries, "left"), number(entries, "right"));
        let is_odd = entries.contains_key("odd");
        let count = left.unwrap_or(0);
        let is_whole = left.is_some() && left == right && is_odd == (count % 2 == 1);
        if !is_whole || entries.len() > 3 {
            self.wrong(format!("worker {who} read {entries:?}"));
        }
        let before = self.highest.insert(who, count).unwrap_or(0);
        let most = self.begun - self.refused;
        if !(before.max(least)..=most).contains(&count) {
            self.wrong(format!(
                "worker {who} read {count} after {before}, of {least} to {most}"
            ));
        }
        count
    }
}

impl Pairs {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all entries. A worker reads no older ones than before, and behind a write none from before the call.
    async fn read(&self, worker: &mut Worker, client: &Client) -> Result<(), Error> {
        let (newest, session) = (self.seen().newest(), client.session_id());
        let is_behind = worker.random.random_bool(0.5) && catch_up(&client.raw()).await;
        let entries = folder(client).get().await?;
        let least = match is_behind && client.session_id() == session {
            true => newest,
            false => 0,
        };
        self.seen().saw(worker.who, least, &entries);
        Ok(())
    }

    async fn update(&self, worker: &Worker, client: &Client) -> Result<(), Error> {
        let before = {
            let mut seen = self.seen();
            seen.begun += 1;
            seen.newest()
        };
        let updated = folder(client).update(raise).await;
        let mut seen = self.seen();
        match &updated {
            Ok(entries) => {
                // Updates that were acknowledged before this one began are part of it.
                let count = seen.saw(worker.who, before + 1, entries);
                if !seen.made.insert(count) {
                    seen.wrong(format!("update {count} was made twice"));
                }
            }
            // It may have been made.
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            }) => {}
            Err(_) => seen.refused += 1,
        }
        updated.map(drop)
    }
}

impl Recipe for Pairs {
    const NAME: &'static str = "config-folder";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let mut used = self.read(worker, client).await;
        if used.is_ok() {
            used = self.update(worker, client).await;
        }
        let ended = match used {
            Ok(()) => Round::Done,
            Err(error) => {
                worker.failed(&error);
                Round::Failed
            }
        };
        worker.pause().await;
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(ended),
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.seen().wrong.clone().map_or(Ok(()), Err)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let entries = folder(client).get().await;
        let entries = entries.map_err(|error| error.to_string())?;
        let mut seen = self.seen();
        let (least, most) = (seen.made.len() as u64, seen.begun - seen.refused);
        let newest = seen.newest();
        let made = seen.saw(usize::MAX, newest, &entries);
        match (least..=most).contains(&made) {
            true => Ok(()),
            false => Err(format!("{made} updates were made, of {least} to {most}")),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        let inside = path.strip_prefix("/sim/folder/");
        ["/sim", "/sim/folder"].contains(&path)
            || inside.is_some_and(|name| ["left", "right", "odd", "ready"].contains(&name))
    }
}
