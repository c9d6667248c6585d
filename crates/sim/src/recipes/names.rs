//! Names: a permanent name has one owner, which removes it once; each unique name goes to one worker.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::error::StateError;
use bellwether::{Client, Names};
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use rand::Rng as _;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::worker::{Gone, Worker};

/// Workers compete for one name, and request unique ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners(Arc<Mutex<Register>>);

#[derive(Debug, Default)]
struct Register {
    /// Number in the contested name. It increases when the owner of the name is unknown.
    number: u32,
    /// From the return of the registration to the call of the removal.
    owner: Option<usize>,
    unique: BTreeSet<String>,
    wrong: Option<String>,
}

impl Register {
    fn in_doubt(&mut self) {
        self.owner = None;
        self.number += 1;
    }
}

impl Owners {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, what: String) {
        self.register().wrong.get_or_insert(what);
    }

    async fn own(&self, worker: &mut Worker, names: &Names) -> Result<(), StateError> {
        let number = self.register().number;
        let name = format!("name{number}");
        let data = worker.who.to_string();
        match names.register_lasting(&name, data.as_bytes()).await {
            Ok(()) => {}
            Err(StateError::NameTaken { .. }) => {
                worker.pause().await;
                return Ok(());
            }
            Err(error) => {
                self.doubt(number);
                return Err(error);
            }
        }
        // While this worker waited, the owner may have become unknown, and a later name be in use.
        if self.register().number != number {
            return Ok(());
        }
        if let Some(other) = self.register().owner.replace(worker.who) {
            self.wrong(format!(
                "{name} is owned by workers {other} and {}",
                worker.who
            ));
        }
        worker.work().await;
        if names.resolve(&name).await? != Some(data.into_bytes()) {
            self.wrong(format!("{name} of worker {} has other data", worker.who));
        }
        self.register().owner = None;
        match names.remove(&name).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.wrong(format!("{name} of worker {} was gone", worker.who));
                Ok(())
            }
            Err(error) => {
                self.doubt(number);
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

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let names = Names::new(client, "/sim/names");
        let result = if worker.random.random_ratio(1, 3) {
            let unique = names.unique("unique-", "").await;
            unique.map(|name| {
                if !self.register().unique.insert(name.clone()) {
                    self.wrong(format!("{name} was given twice"));
                }
            })
        } else {
            self.own(worker, &names).await
        };
        if let Err(error) = result {
            worker.note(What::Failed(error.to_string()));
            worker.pause().await;
        }
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(()),
        }
    }

    fn killed(&self, _: usize) {
        // Whatever it was about to do, the name that it may own is abandoned.
        self.register().in_doubt();
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.register().wrong.clone().map_or(Ok(()), Err)
    }

    fn may_stay(&self, path: &str) -> bool {
        path == "/sim" || path.starts_with("/sim/names")
    }
}
