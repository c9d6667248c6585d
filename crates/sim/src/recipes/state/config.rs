//! Configuration: every write is made once, in an order that agrees with time, and what is read or followed never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::state::{Entry, Live};
use bellwether::{Client, Config, Error, ErrorKind};
use bellwether_testkit::History;
use bellwether_testkit::history::Moment;
use rand::Rng as _;

use super::catch_up::catch_up;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

const PATH: &str = "/sim/config";

/// Workers set, replace, read and follow a value. Values are unique, and each write raises the version by one. A check of all possible
/// orders would be slow in long runs; with versions, the order is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(Arc<Mutex<ConfigNotes>>);

#[derive(Debug, Default)]
struct ConfigNotes {
    /// How many values there were. A value is its number.
    values: u64,
    /// Acknowledged writes, by their values: when they were called and returned.
    made: BTreeMap<u64, (Moment, Moment)>,
    /// Values of writes that are known not to have been made.
    refused: BTreeSet<u64>,
    /// The value of each version that was seen.
    seen: BTreeMap<i32, u64>,
    /// Reads behind a write: when they were called, when they returned, and the version.
    reads: Vec<(Moment, Moment, i32)>,
    /// The newest version that each worker has read.
    newest: BTreeMap<usize, i32>,
    /// The newest version that was not the current one when a worker wanted to replace it.
    replaced: Option<i32>,
    wrong: Option<String>,
}

impl ConfigNotes {
    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A worker has seen a value. Returns its version, −1 if there is no value yet.
    fn saw(&mut self, who: usize, entry: Option<&Entry<String>>) -> i32 {
        let Some(entry) = entry else {
            return -1;
        };
        let version = entry.version.number();
        self.has(who, version, &entry.value);
        version
    }

    /// A worker has learned the value of a version.
    fn has(&mut self, who: usize, version: i32, text: &str) {
        let value = text.parse().unwrap_or(0);
        let first = *self.seen.entry(version).or_insert(value);
        if first != value || !(1..=self.values).contains(&value) {
            self.wrong(format!(
                "worker {who} found {text:?} in version {version}, which has {first}"
            ));
        }
    }

    /// Checks that each value has one version, and that versions increase with time.
    fn check(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)?;
        let mut versions: BTreeMap<u64, i32> = BTreeMap::new();
        for (version, value) in &self.seen {
            if let Some(other) = versions.insert(*value, *version) {
                return Err(format!(
                    "value {value} is in versions {other} and {version}"
                ));
            }
            if self.refused.contains(value) {
                return Err(format!(
                    "value {value} was refused, and is version {version}"
                ));
            }
        }
        let writes = self.made.iter().filter_map(|(value, (called, returned))| {
            let version = versions.get(value)?;
            Some((*called, *returned, *version, true))
        });
        let reads = self.reads.iter();
        let reads = reads.map(|(called, returned, version)| (*called, *returned, *version, false));
        let mut calls: Vec<_> = writes.chain(reads).collect();
        let mut returns: Vec<_> = calls.iter().map(|call| (call.1, call.2)).collect();
        calls.sort_unstable();
        returns.sort_unstable();
        let mut returns = returns.into_iter().peekable();
        // The newest version that was there before a call.
        let mut before = -1;
        for (called, _, version, is_write) in calls {
            while let Some((_, returned)) = returns.next_if(|(at, _)| *at < called) {
                before = before.max(returned);
            }
            let is_wrong = match is_write {
                true => version <= before,
                false => version < before,
            };
            if is_wrong {
                let what = if is_write { "write" } else { "read" };
                return Err(format!(
                    "a {what} of version {version} began after {before}"
                ));
            }
        }
        Ok(())
    }
}

impl Values {
    fn notes(&self) -> MutexGuard<'_, ConfigNotes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the value. A worker reads no older value than before, and behind a write none that had been replaced when it was called.
    async fn read(
        &self,
        worker: &mut Worker,
        client: &Client,
        config: &Config<String>,
    ) -> Result<Option<Entry<String>>, Error> {
        let (called, session) = (Stage::moment(), client.session_id());
        let is_behind = worker.random.random_bool(0.5) && catch_up(&client.raw()).await;
        let entry = config.get().await?;
        let mut notes = self.notes();
        let version = notes.saw(worker.who, entry.as_ref());
        if is_behind && client.session_id() == session {
            notes.reads.push((called, Stage::moment(), version));
        }
        let last = notes.newest.insert(worker.who, version);
        if let Some(last) = last.filter(|last| *last > version) {
            let who = worker.who;
            notes.wrong(format!("worker {who} read version {version} after {last}"));
        }
        Ok(entry)
    }

    /// Replaces the value, with or without a look at the present one. Returns whether it did.
    async fn write(
        &self,
        worker: &mut Worker,
        client: &Client,
        config: &Config<String>,
    ) -> Result<bool, Error> {
        let present = match worker.random.random_bool(0.5) {
            true => Some(self.read(worker, client, config).await?),
            false => None,
        };
        let (number, called) = {
            let mut notes = self.notes();
            notes.values += 1;
            (notes.values, Stage::moment())
        };
        let value = number.to_string();
        // The version that it has now, if that is known.
        let written = match &present {
            None => config.set(&value).await.map(|()| Some(None)),
            Some(None) => {
                let created = config.create(&value).await;
                created.map(|created| created.then_some(Some(0)))
            }
            Some(Some(entry)) => {
                let set = config.compare_and_set(entry.version, &value).await;
                set.map(|version| version.map(|version| Some(version.number())))
            }
        };
        let mut notes = self.notes();
        match &written {
            Ok(Some(version)) => {
                notes.made.insert(number, (called, Stage::moment()));
                if let Some(version) = version {
                    notes.has(worker.who, *version, &value);
                }
            }
            Ok(None) => {
                notes.refused.insert(number);
                let version = present.flatten().map_or(-1, |entry| entry.version.number());
                notes.replaced = notes.replaced.max(Some(version));
            }
            // It may have been made.
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            }) => {}
            Err(_) => drop(notes.refused.insert(number)),
        }
        written.map(|written| written.is_some())
    }

    /// Waits until a follower shows this version or a newer one. It never goes back.
    async fn follow(
        &self,
        worker: &Worker,
        live: &mut Live<Option<Entry<String>>>,
        version: i32,
    ) -> Result<(), Error> {
        let mut last = -1;
        loop {
            let entry = live.get();
            let shown = self.notes().saw(worker.who, entry.as_ref().as_ref());
            if shown < last {
                let who = worker.who;
                let wrong = format!("version {shown} followed {last} at worker {who}");
                self.notes().wrong(wrong);
            }
            if shown >= version {
                return Ok(());
            }
            last = shown;
            live.changed().await?;
        }
    }

    async fn use_once(
        &self,
        worker: &mut Worker,
        client: &Client,
        config: &Config<String>,
    ) -> Result<bool, Error> {
        let mut live = match worker.random.random_ratio(1, 3) {
            true => Some(config.live().await?),
            false => None,
        };
        let is_written = self.write(worker, client, config).await?;
        if let Some(live) = &mut live {
            let entry = self.read(worker, client, config).await?;
            let version = entry.map_or(-1, |entry| entry.version.number());
            if let Err(error) = self.follow(worker, live, version).await {
                worker.failed(&error);
                return Ok(false);
            }
        }
        Ok(is_written)
    }
}

impl Recipe for Values {
    const NAME: &'static str = "config";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let config = Config::<String>::new(client, PATH);
        let stopped = worker.stopped();
        let used = tokio::select! {
            biased;
            used = self.use_once(worker, client, &config) => used,
            () = stopped => return Err(Gone),
        };
        let ended = match used {
            Ok(true) => Round::Done,
            // Another worker was quicker.
            Ok(false) => Round::Failed,
            Err(error) => {
                worker.failed(&error);
                Round::Failed
            }
        };
        worker.pause().await;
        Ok(ended)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.notes().check()
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let entry = Config::<String>::new(client, PATH).get().await;
        let entry = entry.map_err(|error| error.to_string())?;
        let mut notes = self.notes();
        let version = notes.saw(usize::MAX, entry.as_ref());
        let made = u64::try_from(version + 1).unwrap_or(0);
        let least = notes.made.len() as u64;
        let most = notes.values - notes.refused.len() as u64;
        if !(least..=most).contains(&made) {
            return Err(format!("{made} writes were made, of {least} to {most}"));
        }
        match notes.replaced.filter(|replaced| *replaced >= version) {
            Some(_) => Err(format!("version {version} was never replaced, and refused")),
            None => Ok(()),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        ["/sim", PATH].contains(&path)
    }
}
