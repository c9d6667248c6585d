//! The end of a round: waits until all work is finished, and reads the final state of the servers.

use std::time::Duration;

use anyhow::{Context, Result};
use bellwether::{Client, Counter, TwoPhase};
use bellwether_testkit::history::Moment;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::crew::Records;
use crate::recipe::Recipe;
use crate::verdict::{Remains, standing};
use crate::worker::Orders;
use crate::workload::transactions::sites;

pub(super) struct Finish<'a> {
    pub(super) client: &'a Client,
    pub(super) orders: &'a Orders,
    pub(super) records: Records,
}

impl Finish<'_> {
    /// Waits until every worker has succeeded since `calm`, queues are empty and transactions are done. Returns the workers that have not
    /// when the time is over. The time begins again whenever less work is left than ever before: a slow machine takes longer.
    pub(super) async fn recovered(&self, calm: Moment, limit: Duration) -> Vec<(Recipe, usize)> {
        let mut deadline = Instant::now() + limit;
        let mut least = usize::MAX;
        let mut turns = interval(Duration::from_millis(100));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            let missing = self.records.missing(calm, self.orders);
            // A server fault may have ended the session of this process, too.
            let unsettled = self.unsettled().await.unwrap_or(usize::MAX);
            let left = missing.len().saturating_add(unsettled);
            if left < least {
                least = left;
                deadline = Instant::now() + limit;
            }
            if left == 0 || Instant::now() >= deadline {
                return missing;
            }
        }
    }

    /// How many items are in queues, and how many transactions are not done. Decides transactions without a coordinator.
    async fn unsettled(&self) -> Result<usize> {
        let mut unsettled = 0;
        for &recipe in &self.orders.recipes {
            match recipe {
                Recipe::Shelf(shelf) => {
                    let place = shelf.at(self.client, &self.orders.path_of(recipe));
                    unsettled += place.left().await?.0;
                }
                Recipe::TwoPhase => {
                    let transactions = self.transactions();
                    let all = transactions.list().await?;
                    let open = all.iter().filter(|status| status.decision.is_none());
                    for status in open {
                        let transaction = transactions.transaction(&status.id);
                        transaction.coordinate().await?.decide().await?;
                    }
                    unsettled += all.iter().filter(|status| !status.is_done()).count();
                }
                _ => {}
            }
        }
        Ok(unsettled)
    }

    fn transactions(&self) -> TwoPhase {
        TwoPhase::new(self.client, self.orders.path_of(Recipe::TwoPhase))
    }

    /// State of the servers, after all workers have stopped.
    pub(super) async fn remains(&self) -> Result<Remains> {
        let mut remains = Remains::default();
        for &recipe in &self.orders.recipes {
            let path = self.orders.path_of(recipe);
            match recipe {
                Recipe::Counter => {
                    remains.sum = Counter::new(self.client, path).get().await?;
                }
                Recipe::Shelf(shelf) => {
                    let (left, dead) = shelf.at(self.client, &path).left().await?;
                    remains.items.insert(recipe, left);
                    remains.dead.insert(recipe, dead);
                }
                Recipe::TwoPhase => {
                    let names = sites(self.orders.workers);
                    for status in self.transactions().list().await? {
                        remains.notes.extend(standing(&status, &names));
                        remains.transactions.push(status.id);
                    }
                }
                _ => {}
            }
        }
        Ok(remains)
    }

    /// Deletes the nodes of the round.
    pub(super) async fn clean_up(&self) -> Result<()> {
        let raw = self.client.raw();
        let mut paths = vec![self.orders.path.clone()];
        let mut next = 0;
        while next < paths.len() {
            // The servers may delete some meanwhile.
            for name in raw.children(&paths[next]).await.unwrap_or_default() {
                paths.push(format!("{}/{name}", paths[next]));
            }
            next += 1;
        }
        for path in paths.iter().rev() {
            match raw.delete(path, None).await {
                Ok(()) => {}
                Err(_) if raw.exists(path).await?.is_none() => {}
                Err(error) => return Err(error).context(format!("cannot delete {path}")),
            }
        }
        Ok(())
    }
}
