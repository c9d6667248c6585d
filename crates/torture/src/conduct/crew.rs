//! Worker processes of a round, and their records.

use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_testkit::history::gates::Passage;
use bellwether_testkit::history::rounds::RoundStep;
use bellwether_testkit::history::{Moment, What};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::recipe::Recipe;
use crate::record::{Did, Record};
use crate::worker::{Orders, RECOVERY};

/// Time limit for a worker to stop when ordered.
const STOP_MAX: Duration = Duration::from_secs(30);

/// All records so far, in no order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records(Arc<Mutex<Vec<Record>>>);

impl Records {
    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, record: Record) {
        self.lock().push(record);
    }

    /// Records a fault of a process, now.
    pub(crate) fn fault(&self, who: usize, what: What) {
        self.add(Record {
            at: Moment::now(),
            who,
            recipe: None,
            did: Did::Hold(what),
        });
    }

    /// The worker with the latest grant.
    pub(crate) fn last_granted(&self) -> Option<usize> {
        let records = self.lock();
        let is_grant = |record: &&Record| matches!(record.did, Did::Hold(What::Granted { .. }));
        // Only the latest records matter.
        let mut latest = records.iter().rev().take(1_000);
        latest.find(is_grant).map(|record| record.who)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Workers without a success since `since`, by recipe.
    pub(crate) fn missing(&self, since: Moment, orders: &Orders) -> Vec<(Recipe, usize)> {
        let records = self.lock();
        let came_through = |recipe: Recipe, who: usize| {
            let mut own = records.iter().rev();
            own.any(|record| {
                record.recipe == Some(recipe)
                    && record.who == who
                    && record.at > since
                    && record.is_success()
            })
        };
        let mut missing = Vec::new();
        for &recipe in &orders.recipes {
            // No new work starts in these; their state is read from the servers.
            if matches!(recipe, Recipe::Shelf(_) | Recipe::TwoPhase) {
                continue;
            }
            let all = (0..orders.workers).filter(|who| !came_through(recipe, *who));
            missing.extend(all.map(|who| (recipe, who)));
        }
        missing
    }

    /// All records in the order of time.
    pub(crate) fn sorted(&self) -> Vec<Record> {
        let mut records = self.lock().clone();
        records.sort_by_key(|record| record.at);
        records
    }
}

/// Builds the command of a worker process with these orders; its stdin and stdout are set later.
pub(crate) type Spawn = Box<dyn Fn(&Orders) -> Command + Send + Sync>;

/// The workers of a round. Dropping it kills them.
pub(crate) struct Crew<'a> {
    spawn: &'a Spawn,
    members: Vec<Member>,
    pub(crate) records: Records,
    is_recovering: bool,
}

struct Member {
    orders: Orders,
    process: Child,
    /// Reads its output, to the end.
    listening: JoinHandle<()>,
}

impl<'a> Crew<'a> {
    pub(crate) fn new(spawn: &'a Spawn) -> Self {
        Self {
            spawn,
            members: Vec::new(),
            records: Records::default(),
            is_recovering: false,
        }
    }

    /// Starts another worker.
    pub(crate) fn add(&mut self, orders: Orders) -> Result<()> {
        let member = self.start(orders)?;
        self.members.push(member);
        Ok(())
    }

    fn start(&self, orders: Orders) -> Result<Member> {
        let mut process = (self.spawn)(&orders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Signals of the terminal are for the parent process.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        let printed = process.stdout.take().context("stdout is a pipe")?;
        Ok(Member {
            orders,
            process,
            listening: tokio::spawn(listen(printed, self.records.clone())),
        })
    }

    /// Kills a worker and starts it again.
    pub(crate) async fn kill(&mut self, who: usize) -> Result<()> {
        let killed = Moment::now();
        let member = &mut self.members[who];
        self.records.fault(who, What::Fault("killed".into()));
        member.process.start_kill()?;
        member.process.wait().await?;
        (&mut member.listening).await?;
        let mut orders = member.orders.clone();
        bury(&self.records, &orders, killed);
        orders.generation += 1;
        self.members[who] = self.start(orders)?;
        if self.is_recovering {
            self.tell(who).await?;
        }
        Ok(())
    }

    /// Stops a worker (SIGSTOP), or continues it.
    pub(crate) fn signal(&self, who: usize, signal: Signal) {
        let id = self.members[who].process.id();
        let id = id.and_then(|id| i32::try_from(id).ok());
        if let Some(process) = id.and_then(Pid::from_raw) {
            // The process is not reaped before its handle is awaited, so the id is still its own.
            let _ = kill_process(process, signal);
        }
    }

    /// Tells all workers that the faults have ended.
    pub(crate) async fn recover(&mut self) -> Result<()> {
        self.is_recovering = true;
        for who in 0..self.members.len() {
            self.tell(who).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, who: usize) -> Result<()> {
        let input = self.members[who].process.stdin.as_mut();
        let input = input.context("it is not stopped yet")?;
        let line = format!("{RECOVERY}\n");
        let told = input.write_all(line.as_bytes()).await;
        told.with_context(|| format!("worker {who} has ended"))
    }

    /// Ends all workers, and waits for them.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for member in &mut self.members {
            drop(member.process.stdin.take());
        }
        for (who, mut member) in self.members.drain(..).enumerate() {
            let ended = timeout(STOP_MAX, member.process.wait()).await;
            let ended = ended.with_context(|| format!("worker {who} does not stop"))??;
            member.listening.await?;
            ensure!(ended.success(), "worker {who} failed: {ended}");
        }
        Ok(())
    }
}

/// Records the output of a process. Skips a line cut short by its death.
async fn listen(printed: ChildStdout, records: Records) {
    let mut lines = BufReader::new(printed).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(record) = serde_json::from_str(&line) {
            records.add(record);
        }
    }
}

/// Ends what a killed process had begun: its holds, and its part in barriers.
fn bury(records: &Records, orders: &Orders, killed: Moment) {
    // It may have ended before the signal arrived.
    let all = records.sorted();
    let own = all.iter().filter(|record| record.who == orders.who);
    let last = own.clone().map(|record| record.at).max().unwrap_or(killed);
    let at = killed.max(last);
    let end = |recipe: Option<Recipe>, did: Did| {
        records.add(Record {
            at,
            who: orders.who,
            recipe,
            did,
        });
    };
    // If it was stopped, that has ended too.
    end(None, Did::Hold(What::Resumed));
    for &recipe in &orders.recipes {
        match recipe {
            Recipe::Held(_) | Recipe::Shelf(_) => {
                let mut open = Vec::new();
                for record in own.clone().filter(|record| record.recipe == Some(recipe)) {
                    match record.did {
                        Did::Hold(What::Granted { token, .. }) => open.push(token),
                        Did::Hold(
                            What::Lost { token }
                            | What::Releasing { token }
                            | What::Dropping { token },
                        ) => open.retain(|held| *held != token),
                        _ => {}
                    }
                }
                for token in open {
                    end(Some(recipe), Did::Hold(What::Dropping { token }));
                }
            }
            Recipe::Barrier if orders.who == 0 => end(Some(recipe), Did::Pass(Passage::Opening)),
            Recipe::Barrier => end(Some(recipe), Did::Pass(Passage::Failed)),
            Recipe::DoubleBarrier => end(Some(recipe), Did::Meet(RoundStep::Ending)),
            // What has no end in the records may have happened or not.
            Recipe::Counter
            | Recipe::TwoPhase
            | Recipe::FencedWrites
            | Recipe::Config
            | Recipe::Group
            | Recipe::Cache => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::held::Held;

    #[test]
    fn holds_of_a_killed_process_end_with_it() {
        let lock = Recipe::Held(Held::Lock);
        let orders = Orders {
            who: 1,
            generation: 0,
            workers: 3,
            seed: 0,
            recipes: vec![lock, Recipe::Counter],
            path: "/".into(),
            folder: "/".into(),
            servers: None,
        };
        let records = Records::default();
        let note = |who, token| {
            records.add(Record {
                at: Moment::now(),
                who,
                recipe: Some(lock),
                did: Did::Hold(What::Granted { token, weight: 1 }),
            });
        };
        let killed = Moment::now();
        note(0, 1);
        // Granted after the signal was sent, and before it arrived.
        note(1, 2);
        bury(&records, &orders, killed);
        let ends: Vec<_> = records
            .sorted()
            .into_iter()
            .filter(|record| matches!(record.did, Did::Hold(What::Dropping { .. })))
            .collect();
        let [end] = ends.as_slice() else {
            panic!("{ends:?}");
        };
        assert_eq!(end.did, Did::Hold(What::Dropping { token: 2 }));
        assert!(end.at > killed);
        assert_eq!(records.last_granted(), Some(1));
    }
}
