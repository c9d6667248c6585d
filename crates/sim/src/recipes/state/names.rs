//! Names: a permanent name has one owner, which removes it once; each unique name goes to one worker, stays, and has a higher number than earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::{Client, Error, ErrorKind, Names};
use bellwether_testkit::History;
use rand::Rng as _;

use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::worker::{Gone, Worker};

/// Workers compete for one name, and request unique ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners(Arc<Mutex<Register>>);

const PATH: &str = "/sim/names";

#[derive(Debug, Default)]
struct Register {
    /// Number in the contested name. It increases when the owner of the name is unknown.
    number: u32,
    /// From the return of the registration to the call of the removal.
    owner: Option<usize>,
    /// Workers that register or remove the contested name now.
    busy: BTreeSet<usize>,
    /// The unique names that were given, by their numbers.
    unique: BTreeMap<u64, String>,
    /// How many unique names were asked for, and known not to be made.
    asked: usize,
    refused: usize,
    wrong: Option<String>,
}

impl Register {
    fn in_doubt(&mut self) {
        self.owner = None;
        self.number += 1;
    }

    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A unique name was given. `before` was the highest number when it was asked for.
    fn given(&mut self, before: Option<u64>, name: String) {
        let number = name.rsplit('-').next().and_then(|text| text.parse().ok());
        let Some(number) = number.filter(|number| Some(*number) > before) else {
            return self.wrong(format!("{name} was given after number {before:?}"));
        };
        if let Some(other) = self.unique.insert(number, name) {
            let name = &self.unique[&number];
            let wrong = format!("{name} and {other} have one number");
            self.wrong(wrong);
        }
    }
}

impl Owners {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, what: String) {
        self.register().wrong(what);
    }

    /// Whether this worker got the contested name, and removed it.
    async fn own(&self, worker: &mut Worker, names: &Names) -> Result<bool, Error> {
        let number = self.register().number;
        let name = format!("name{number}");
        let data = worker.who.to_string();
        self.register().busy.insert(worker.who);
        let registered = names.register_lasting(&name, data.as_bytes()).await;
        self.register().busy.remove(&worker.who);
        match registered {
            Ok(()) => {}
            Err(Error {
                kind: ErrorKind::NameTaken,
                ..
            }) => return Ok(false),
            Err(error) => {
                self.doubt(number);
                return Err(error);
            }
        }
        // While this worker waited, the owner may have become unknown, and a later name be in use.
        if self.register().number != number {
            return Ok(false);
        }
        let other = self.register().owner.replace(worker.who);
        if let Some(other) = other {
            self.wrong(format!(
                "{name} is owned by workers {other} and {}",
                worker.who
            ));
        }
        worker.work().await;
        match names.resolve(&name).await {
            Ok(Some(found)) if found == data.as_bytes() => {}
            Ok(_) => self.wrong(format!("{name} of worker {} has other data", worker.who)),
            Err(error) => {
                // It is given up.
                self.doubt(number);
                return Err(error);
            }
        }
        {
            let mut register = self.register();
            // Otherwise it is the owner of a later name.
            if register.number == number {
                register.owner = None;
            }
            register.busy.insert(worker.who);
        }
        let removed = names.remove(&name).await;
        self.register().busy.remove(&worker.who);
        match removed {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.wrong(format!("{name} of worker {} was gone", worker.who));
                Ok(false)
            }
            Err(error) => {
                self.doubt(number);
                Err(error)
            }
        }
    }

    async fn unique(&self, names: &Names) -> Result<(), Error> {
        let before = {
            let mut register = self.register();
            register.asked += 1;
            register.unique.keys().next_back().copied()
        };
        let given = names.unique("unique-", "").await;
        let mut register = self.register();
        match given {
            Ok(name) => {
                register.given(before, name);
                Ok(())
            }
            Err(error) => {
                // Otherwise it may have been made.
                if !matches!(error.kind, ErrorKind::OutcomeUnknown(_)) {
                    register.refused += 1;
                }
                Err(error)
            }
        }
    }

    /// Whether this name is taken is now unknown.
    fn doubt(&self, number: u32) {
        let mut register = self.register();
        if register.number == number {
            register.in_doubt();
        }
    }
}

impl Recipe for Owners {
    const NAME: &'static str = "names";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let names = Names::new(client, PATH);
        let result = match worker.random.random_ratio(1, 3) {
            true => self.unique(&names).await.map(|()| true),
            false => self.own(worker, &names).await,
        };
        let ended = match result {
            Ok(true) => Round::Done,
            Ok(false) => Round::Failed,
            Err(error) => {
                worker.failed(&error);
                Round::Failed
            }
        };
        if ended == Round::Failed {
            worker.pause().await;
        }
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(ended),
        }
    }

    fn killed(&self, who: usize) {
        let mut register = self.register();
        if register.busy.remove(&who) || register.owner == Some(who) {
            // Whatever it was about to do, the name that it may own is abandoned.
            register.in_doubt();
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.register().wrong.clone().map_or(Ok(()), Err)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let names = Names::new(client, PATH).list().await;
        let names = names.map_err(|error| error.to_string())?;
        let register = self.register();
        let listed: BTreeSet<&String> = names.iter().collect();
        if let Some(gone) = register.unique.values().find(|name| !listed.contains(name)) {
            return Err(format!("{gone} was given, and is gone"));
        }
        let unique = names.iter().filter(|name| name.starts_with("unique-"));
        let (made, most) = (unique.count(), register.asked - register.refused);
        match made > most {
            true => Err(format!("{made} unique names were made, of {most} at most")),
            false => Ok(()),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        let is_abandoned = |name: &str| {
            let number = name.strip_prefix("name").and_then(|text| text.parse().ok());
            number.is_some_and(|number: u32| number < self.register().number)
        };
        let inside = path
            .strip_prefix(PATH)
            .and_then(|rest| rest.strip_prefix('/'));
        ["/sim", PATH].contains(&path)
            || inside.is_some_and(|name| name.starts_with("unique-") || is_abandoned(name))
    }
}
