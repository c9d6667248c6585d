//! Groups and configuration: members rejoin after session expiry and leave nothing behind; values do not go back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether::error::StateError;
use bellwether::{Client, Config, Group};
use bellwether_testkit::History;
use bellwether_testkit::history::What;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::worker::{Gone, Worker};

/// Workers join, are members for a while, and leave.
#[derive(Debug, Clone)]
pub(super) struct Members;

impl Members {
    /// Waits until a member that has left is not listed: a create that arrives late must not bring it back for long.
    async fn is_gone(&self, worker: &mut Worker, group: &Group, name: &str) -> Result<(), Gone> {
        worker.pause().await;
        loop {
            match worker.unless_stopped(group.members()).await? {
                Ok(roster) if roster.contains_key(name) => {
                    worker.pause().await;
                }
                _ => return Ok(()),
            }
        }
    }
}

impl Recipe for Members {
    const NAME: &'static str = "group";

    fn new(_: &Plan) -> Self {
        Self
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let group = Group::new(client, "/sim/group");
        let name = format!("worker{}", worker.who);
        let joined = worker.unless_stopped(group.join_as(&name, "new")).await?;
        match joined {
            Ok(member) => {
                worker.work().await;
                let updated = worker.unless_stopped(member.update("changed")).await;
                if let Ok(Err(error)) = updated {
                    worker.note(What::Failed(error.to_string()));
                }
                worker.work().await;
                member.leave().await;
                self.is_gone(worker, &group, &name).await?;
            }
            Err(error) => {
                worker.note(What::Failed(error.to_string()));
                worker.pause().await;
            }
        }
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(()),
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        Ok(())
    }
}

/// Workers set and read a value. No worker reads an older value than before.
#[derive(Debug, Clone, Default)]
pub(super) struct Values(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    newest: BTreeMap<usize, i32>,
    wrong: Option<String>,
}

impl Values {
    fn saw(&self, who: usize, version: i32) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.newest.insert(who, version);
        if let Some(before) = before.filter(|before| *before > version) {
            seen.wrong = Some(format!(
                "worker {who} read version {version} after {before}"
            ));
        }
    }
}

impl Recipe for Values {
    const NAME: &'static str = "config";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let config = Config::<Vec<u8>>::new(client, "/sim/config");
        let value = vec![u8::try_from(worker.who).unwrap_or(0)];
        let result = match worker.unless_stopped(config.get()).await? {
            Ok(entry) => {
                let version = entry.map_or(-1, |entry| entry.version.number());
                self.saw(worker.who, version);
                worker.unless_stopped(config.set(&value)).await?
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            if !matches!(error, StateError::OutcomeUnknown { .. }) {
                worker.note(What::Failed(error.to_string()));
            }
            worker.pause().await;
        }
        worker.pause().await;
        match client.raw().state().is_ended() {
            true => Err(Gone),
            false => Ok(()),
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        match &self.0.lock().unwrap_or_else(PoisonError::into_inner).wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    fn may_stay(&self, path: &str) -> bool {
        ["/sim", "/sim/config"].contains(&path)
    }
}
