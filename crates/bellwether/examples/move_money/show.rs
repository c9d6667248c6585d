//! The scenes: which process is killed when, and what must be true in the end.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether::two_phase::{Decision, Transaction};
use bellwether::{Client, TwoPhase, connect};
use futures_util::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::bank::{BALANCE, BANKS, open};
use super::step::Step;

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(30);

const COORDINATOR: &str = "coordinator";

/// One transfer, and the process that is killed in it.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    victim: &'static str,
    step: Step,
    amount: i64,
}

/// How a scene ended.
pub(crate) struct Shown {
    scene: Scene,
    decision: Decision,
    balances: [i64; 2],
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scene {
            victim,
            step,
            amount,
        } = self.scene;
        let [payer, payee] = self.balances;
        write!(f, "{amount:3}: {victim} killed when {:8} ", step.name())?;
        write!(
            f,
            "-> {:6} {payer:3} + {payee:3}",
            self.decision.to_string()
        )
    }
}

/// All cases: a transfer that is possible and one that is not, and a victim at each step.
pub(crate) fn scenes() -> Vec<Scene> {
    let coordinator = [Step::Waiting, Step::Begun, Step::Decided];
    let bank = [
        Step::Asked,
        Step::Prepared,
        Step::Voted,
        Step::Told,
        Step::Applied,
    ];
    let mut scenes = Vec::new();
    for amount in [7, 700] {
        let mut add = |victim, steps: &[Step]| {
            scenes.extend(steps.iter().map(|&step| Scene {
                victim,
                step,
                amount,
            }));
        };
        add(COORDINATOR, &coordinator);
        add(BANKS[0], &bank);
        // The payee need not be asked if the payer has voted to abort.
        let first = if amount > BALANCE { 2 } else { 0 };
        add(BANKS[1], &bank[first..]);
    }
    scenes
}

/// Plays a scene with processes that `launch` starts from their roles.
pub(crate) async fn show(
    address: &str,
    scene: Scene,
    launch: impl Fn(Vec<String>) -> Result<Command>,
) -> Result<Shown> {
    let client = connect(address).await?;
    let folder = tempfile::tempdir()?;
    let cast = Cast {
        client: &client,
        address,
        scene,
        // A separate path per folder.
        transfers: format!("/examples/transfers-{}", process_wide_name(folder.path())),
        folder: folder.path(),
        launch,
    };
    let shown = timeout(PATIENCE, cast.play()).await;
    shown.with_context(|| format!("{} at {:?}", scene.victim, scene.step))?
}

fn process_wide_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().trim_matches('.').to_owned()
}

struct Cast<'a, L> {
    client: &'a Client,
    address: &'a str,
    scene: Scene,
    transfers: String,
    folder: &'a Path,
    launch: L,
}

impl<L: Fn(Vec<String>) -> Result<Command>> Cast<'_, L> {
    async fn play(&self) -> Result<Shown> {
        let Scene { victim, step, .. } = self.scene;
        let transfers = TwoPhase::new(self.client, &self.transfers);
        let transaction = transfers.transaction("transfer-1");
        let stop_at = |name: &str| match name == victim {
            true => step.name(),
            false => "nowhere".to_owned(),
        };
        let mut actors = Vec::new();
        for name in BANKS {
            let bank = self.start(name, &stop_at(name))?;
            actors.push((name, bank));
        }
        // A bank can die between its vote and the decision only if the decision takes some time.
        let coordinator = match step {
            Step::Voted => Step::Begun.name(),
            _ => stop_at(COORDINATOR),
        };
        actors.push((COORDINATOR, self.start(COORDINATOR, &coordinator)?));

        let mut killed = vec![victim];
        if step == Step::Voted {
            // The next coordinator makes the decision it waits for.
            until_stopped(find(&mut actors, COORDINATOR)?).await?;
            until_voted(&transaction, victim).await?;
            killed.push(COORDINATOR);
        } else {
            until_stopped(find(&mut actors, victim)?).await?;
        }
        for name in killed {
            // Like `kill -9`; the process is gone when this returns.
            find(&mut actors, name)?.kill().await?;
            actors.push((name, self.start(name, "nowhere")?));
        }
        let ended = find(&mut actors, COORDINATOR)?.wait().await?;
        ensure!(ended.success(), "the coordinator failed: {ended}");
        self.end(&transaction).await
    }

    fn start(&self, name: &str, stop_at: &str) -> Result<Child> {
        let (role, own) = match name {
            COORDINATOR => ("transfer", self.scene.amount.to_string()),
            _ => ("bank", self.database(name)),
        };
        let subject = match name {
            COORDINATOR => "transfer-1",
            name => name,
        };
        let words = [self.address, role, &self.transfers, subject, &own, stop_at];
        let mut command = (self.launch)(words.map(str::to_owned).to_vec())?;
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command.kill_on_drop(true).spawn()?)
    }

    fn database(&self, name: &str) -> String {
        let path = self.folder.join(format!("{name}.db"));
        path.display().to_string()
    }

    /// Waits until both banks are done, and reads their balances.
    async fn end(&self, transaction: &Transaction) -> Result<Shown> {
        let seen: Vec<_> = transaction.progress().collect().await;
        let last = seen.into_iter().next_back().context("nothing was seen")??;
        let decision = last.decision.context("all are done without a decision")?;
        let mut balances = [0; 2];
        for (balance, name) in balances.iter_mut().zip(BANKS) {
            let database = open(&self.database(name))?;
            let query = "SELECT balance, (SELECT count(*) FROM prepared) FROM account";
            let (now, open): (i64, i64) =
                database.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            ensure!(open == 0, "{name} has something prepared still");
            *balance = now;
        }
        let moved = match decision {
            Decision::Commit => self.scene.amount,
            Decision::Abort => 0,
        };
        let expected = [BALANCE - moved, BALANCE + moved];
        ensure!(balances == expected, "{decision}, but {balances:?}");
        transaction.forget().await?;
        Ok(Shown {
            scene: self.scene,
            decision,
            balances,
        })
    }
}

/// The process in a role, the last one if there were several.
fn find<'c>(actors: &'c mut [(&'static str, Child)], name: &str) -> Result<&'c mut Child> {
    let found = actors.iter_mut().rfind(|(other, _)| *other == name);
    found
        .map(|(_, child)| child)
        .with_context(|| format!("there is no process {name}"))
}

/// Reads the output of a process until it reports that it has reached its step.
async fn until_stopped(child: &mut Child) -> Result<()> {
    let said = child.stderr.take().context("stderr is read once")?;
    let mut lines = BufReader::new(said).lines();
    while let Some(line) = lines.next_line().await? {
        if line == "stopped" {
            return Ok(());
        }
    }
    anyhow::bail!("it ended before its step")
}

async fn until_voted(transaction: &Transaction, name: &str) -> Result<()> {
    let mut progress = transaction.progress();
    while let Some(status) = progress.next().await {
        if status?.sites[name].ballot.is_some() {
            return Ok(());
        }
    }
    anyhow::bail!("there was no vote")
}
