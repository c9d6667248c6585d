//! Moves money between two accounts with a two-phase commit.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bellwether::two_phase::{Decision, Participant, Proposal, Vote};
use bellwether::{Client, TwoPhase};

use super::rest;

/// An account. A real one keeps its reservations on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    balance: i64,
    /// By the id of the transaction.
    reserved: BTreeMap<String, i64>,
}

impl Account {
    pub(crate) fn with(balance: i64) -> Self {
        let account = Self::default();
        account.books(|books| books.balance = balance);
        account
    }

    pub(crate) fn balance(&self) -> i64 {
        self.books(|books| books.balance)
    }

    fn books<T>(&self, look: impl FnOnce(&mut Books) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Participant for Account {
    type Error = Infallible;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, Infallible> {
        let amount: i64 = String::from_utf8_lossy(proposal.payload())
            .parse()
            .unwrap_or(0);
        let change = if proposal.site() == "payer" {
            -amount
        } else {
            amount
        };
        Ok(self.books(|books| match books.balance + change < 0 {
            true => Vote::Abort("not enough money".into()),
            false => {
                books.reserved.insert(proposal.id().to_owned(), change);
                Vote::Commit
            }
        }))
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), Infallible> {
        // Removed, so that repeated calls apply it only once.
        self.books(|books| books.balance += books.reserved.remove(proposal.id()).unwrap_or(0));
        Ok(())
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), Infallible> {
        self.books(|books| books.reserved.remove(proposal.id()));
        Ok(())
    }
}

fn transfers(client: &Client) -> TwoPhase {
    TwoPhase::new(client, "/services/transfers")
}

/// Takes part in every undecided transfer, as one of the two sites.
pub(crate) async fn serve(client: &Client, site: &str, account: &Account) -> Result<()> {
    loop {
        for status in transfers(client).list().await.unwrap_or_default() {
            let transfer = transfers(client).transaction(&status.id);
            if let Err(error) = transfer.participate(site, &mut account.clone()).await {
                eprintln!("{site}: {error}");
            }
        }
        rest().await;
    }
}

/// Moves an amount, and returns the decision.
pub(crate) async fn send(client: &Client, id: &str, amount: i64) -> Result<Decision> {
    let transfers = transfers(client);
    let transfer = transfers.begin_as(id, ["payer", "payee"], amount.to_string());
    let mut coordinator = transfer.await?;
    Ok(coordinator.decide().await?)
}
