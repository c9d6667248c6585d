//! Two-phase commit where only the sites themselves fail.

mod absence;
mod aftermath;
mod counts;
mod crashes;
mod decisions;
mod histories;
mod money;
mod serving;
mod witness;

use bellwether::two_phase::{Decision, Form, Participant, Proposal, Status, Transaction, Vote};
use bellwether::{Error, TwoPhase};
use futures_util::StreamExt;

use crate::support::place::{Place, soon};

const SITES: [&str; 3] = ["a", "b", "c"];

/// Votes as it was told to, and records its calls.
#[derive(Default)]
struct Actor {
    refuses: bool,
    /// Number of calls that fail before one succeeds.
    failures: usize,
    calls: Vec<String>,
}

impl Actor {
    fn call(&mut self, what: &str, proposal: &Proposal) -> Result<(), String> {
        self.calls.push(format!("{what} {}", proposal.site()));
        match self.failures.checked_sub(1) {
            Some(left) => {
                self.failures = left;
                Err(format!("cannot {what}"))
            }
            None => Ok(()),
        }
    }
}

impl Participant for Actor {
    type Error = String;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, String> {
        self.call("prepare", proposal)?;
        Ok(match self.refuses {
            true => Vote::Abort("will not".into()),
            false => Vote::Commit,
        })
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), String> {
        self.call("commit", proposal)
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), String> {
        self.call("abort", proposal)
    }
}

/// Transactions, seen through a session of their own.
async fn transactions(place: &Place, form: Form) -> TwoPhase {
    TwoPhase::new(&place.client().await, "/tx").form(form)
}

/// The same transaction, through another session.
async fn elsewhere(place: &Place, transaction: &Transaction) -> Transaction {
    TwoPhase::new(&place.client().await, "/tx").transaction(transaction.id())
}

/// Takes part in a separate task.
fn spawn(
    transaction: Transaction,
    site: &'static str,
    mut actor: Actor,
) -> tokio::task::JoinHandle<(Result<Decision, Error>, Actor)> {
    tokio::spawn(async move {
        let decision = transaction.participate(site, &mut actor).await;
        (decision, actor)
    })
}

async fn until_status(transaction: &Transaction, is_so: impl Fn(&Status) -> bool) -> Status {
    let mut progress = transaction.progress();
    soon(async {
        loop {
            let status = progress.next().await.unwrap().unwrap();
            if is_so(&status) {
                return status;
            }
        }
    })
    .await
}
