//! A nightly job that must run once, and whose database refuses a late writer.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use bellwether::{Client, FencingToken, Lock};
use rusqlite::Connection;

use super::rest;

/// What the job has done, by night. Each row has the token of its writer.
pub(crate) struct Ledger(Mutex<Connection>);

impl Ledger {
    pub(crate) fn open(file: &Path) -> Result<Self> {
        let connection = Connection::open(file)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS nights (night INTEGER PRIMARY KEY, token INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS fence (token INTEGER NOT NULL);
             INSERT INTO fence SELECT 0 WHERE NOT EXISTS (SELECT * FROM fence);",
        )?;
        Ok(Self(Mutex::new(connection)))
    }

    /// Records a night, unless a holder with a higher token has recorded one. Returns `false` if it is already recorded.
    fn record(&self, night: i64, token: FencingToken) -> Result<bool> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction()?;
        let admitted = transaction.execute(
            "UPDATE fence SET token = ?1 WHERE token <= ?1",
            [token.number()],
        )?;
        ensure!(admitted == 1, "token {token} is stale");
        let done = transaction.execute(
            "INSERT OR IGNORE INTO nights VALUES (?1, ?2)",
            [night, token.number()],
        )?;
        transaction.commit()?;
        Ok(done == 1)
    }

    pub(crate) fn nights(&self) -> Result<Vec<i64>> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut select = connection.prepare("SELECT night FROM nights ORDER BY night")?;
        let nights = select.query_map([], |row| row.get(0))?;
        Ok(nights.collect::<Result<_, _>>()?)
    }
}

/// Makes sure that a night is done, by this process or by another one.
pub(crate) async fn run(client: &Client, ledger: &Ledger, night: i64) -> Result<()> {
    let lock = Lock::new(client, "/services/nightly").message("nightly job");
    loop {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) if error.is_transient() => {
                rest().await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match guard
            .run(async { ledger.record(night, guard.token()) })
            .await
        {
            Ok(recorded) => {
                recorded?;
                // The result does not matter any more: the night is recorded.
                let _ = guard.release().await;
                return Ok(());
            }
            Err(lost) => eprintln!("{lost}; again"),
        }
    }
}
