//! The processes: a bank, and a coordinator that moves money.

use anyhow::{Context, Result};
use bellwether::two_phase::{Decision, Participant, Proposal, Vote};
use bellwether::{Error, ErrorKind, Json, TwoPhase, connect};
use futures_util::StreamExt;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use serde::{Deserialize, Serialize};

use super::step::{Step, reach};

pub(crate) const BANKS: [&str; 2] = ["payer", "payee"];

/// Initial balance of each bank.
pub(crate) const BALANCE: i64 = 100;

#[derive(Serialize, Deserialize)]
struct Transfer {
    amount: i64,
}

/// A bank as a participant of transfers.
struct Bank {
    database: Connection,
    stop_at: String,
}

/// Opens a bank's database, and sets it up if it is new.
pub(crate) fn open(database: &str) -> Result<Connection> {
    let database = Connection::open(database)?;
    database.execute_batch(
        "BEGIN IMMEDIATE;
         CREATE TABLE IF NOT EXISTS account (balance INTEGER NOT NULL CHECK (balance >= 0));
         CREATE TABLE IF NOT EXISTS prepared (id TEXT PRIMARY KEY, change INTEGER NOT NULL);
         COMMIT;",
    )?;
    database.execute(
        "INSERT INTO account SELECT ?1 WHERE NOT EXISTS (SELECT * FROM account)",
        [BALANCE],
    )?;
    Ok(database)
}

impl Bank {
    /// Reserves the change, unless it is already reserved. From then on nothing else can use that money.
    fn reserve(&mut self, id: &str, change: i64) -> Result<Vote> {
        let begun = self
            .database
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let free: i64 = begun.query_row(
            "SELECT balance + (SELECT coalesce(sum(min(change, 0)), 0) FROM prepared WHERE id <> ?1) FROM account",
            [id],
            |row| row.get(0),
        )?;
        if free + change < 0 {
            return Ok(Vote::Abort(format!("only {free} are left")));
        }
        begun.execute(
            "INSERT INTO prepared VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            (id, change),
        )?;
        begun.commit()?;
        Ok(Vote::Commit)
    }

    /// Applies the reserved change, or cancels it. If there is none, this was done before.
    fn settle(&mut self, id: &str, decision: Decision) -> Result<()> {
        let begun = self
            .database
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let change: Option<i64> = begun
            .query_row(
                "DELETE FROM prepared WHERE id = ?1 RETURNING change",
                [id],
                |row| row.get(0),
            )
            .optional()?;
        if let (Some(change), Decision::Commit) = (change, decision) {
            begun.execute("UPDATE account SET balance = balance + ?1", [change])?;
        }
        Ok(begun.commit()?)
    }
}

impl Participant for Bank {
    type Error = anyhow::Error;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote> {
        reach(Step::Asked, &self.stop_at).await;
        let Json(Transfer { amount }) = proposal
            .read()
            .map_err(|error| anyhow::anyhow!("no transfer: {error}"))?;
        let change = match proposal.site() == BANKS[0] {
            true => -amount,
            false => amount,
        };
        let vote = self.reserve(proposal.id(), change)?;
        reach(Step::Prepared, &self.stop_at).await;
        Ok(vote)
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<()> {
        reach(Step::Told, &self.stop_at).await;
        self.settle(proposal.id(), Decision::Commit)?;
        reach(Step::Applied, &self.stop_at).await;
        Ok(())
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<()> {
        reach(Step::Told, &self.stop_at).await;
        self.settle(proposal.id(), Decision::Abort)?;
        reach(Step::Applied, &self.stop_at).await;
        Ok(())
    }
}

/// Takes part in every transfer that waits for this bank, unfinished ones first.
pub(crate) async fn run(
    address: &str,
    transfers: &str,
    name: &str,
    database: &str,
    stop_at: &str,
) -> Result<()> {
    let client = connect(address).await?;
    let mut bank = Bank {
        database: open(database)?,
        stop_at: stop_at.to_owned(),
    };
    let mut invitations = TwoPhase::new(&client, transfers).invitations(name);
    while let Some(transfer) = invitations.next().await {
        let transfer = transfer?;
        let decision = transfer.participate(&mut bank).await?;
        eprintln!("{name}: {decision} of {}", transfer.id());
    }
    Ok(())
}

/// Moves an amount from one bank to the other, or continues a transfer of an earlier process.
pub(crate) async fn transfer(
    address: &str,
    transfers: &str,
    id: &str,
    amount: &str,
    stop_at: &str,
) -> Result<()> {
    let client = connect(address).await?;
    let transfers = TwoPhase::new(&client, transfers);
    reach(Step::Waiting, stop_at).await;
    let amount = amount.parse().context("no amount")?;
    let payload = serde_json::to_vec(&Transfer { amount })?;
    let mut coordinator = match transfers.begin_as(id, BANKS, payload).await {
        Err(Error {
            kind: ErrorKind::AlreadyBegun,
            ..
        }) => transfers.transaction(id).coordinate().await?,
        begun => begun?,
    };
    reach(Step::Begun, stop_at).await;
    let decision = coordinator.decide().await?;
    reach(Step::Decided, stop_at).await;
    eprintln!("{id}: {decision}");
    Ok(())
}
