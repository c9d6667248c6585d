//! Two-phase commit: all sites learn the same decision, and only what all have voted for is committed.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether::two_phase::{
    DeadSite, Decision, Form, Participant, Proposal, TransactionError, Vote,
};
use bellwether::{Client, TwoPhase};
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use bellwether_testkit::history::transactions::{Deed, Note, check_transactions};
use futures_util::StreamExt as _;
use rand::Rng as _;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

const PATH: &str = "/sim/transactions";

/// Worker 0 coordinates, the others are sites.
#[derive(Debug, Clone)]
pub(super) struct Commits {
    notes: Notes,
    sites: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    fn add(&self, transaction: &str, site: Option<usize>, deed: Deed) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(Note {
            at: Stage::moment(),
            transaction: transaction.to_owned(),
            site,
            deed,
        });
    }

    fn told(&self, transaction: &str, site: Option<usize>, decision: Decision) {
        self.add(transaction, site, Deed::Told(decision == Decision::Commit));
    }
}

/// A site that records what happens to it.
struct Site {
    number: usize,
    refuses: bool,
    notes: Notes,
}

impl Participant for Site {
    type Error = Infallible;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, Infallible> {
        let votes = Deed::Votes(!self.refuses);
        self.notes.add(proposal.id(), Some(self.number), votes);
        Ok(match self.refuses {
            true => Vote::Abort("not here".into()),
            false => Vote::Commit,
        })
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), Infallible> {
        let applies = Deed::Applies(true);
        self.notes.add(proposal.id(), Some(self.number), applies);
        Ok(())
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), Infallible> {
        let applies = Deed::Applies(false);
        self.notes.add(proposal.id(), Some(self.number), applies);
        Ok(())
    }
}

impl Commits {
    async fn coordinate(
        &self,
        worker: &mut Worker,
        client: &Client,
    ) -> Result<(), TransactionError> {
        let random = &mut worker.random;
        let transactions = TwoPhase::new(client, PATH)
            .form([Form::Coordinator, Form::EverySite][random.random_range(0..2)])
            .dead_site([DeadSite::Abort, DeadSite::Wait][random.random_range(0..2)])
            .deadline(Duration::from_millis(random.random_range(200..30_000)));
        let mut coordinator = transactions.begin(self.sites.clone(), "").await?;
        let decision = match worker.random.random_ratio(1, 8) {
            true => coordinator.abort("changed its mind").await?,
            false => coordinator.decide().await?,
        };
        self.notes.told(coordinator.id(), None, decision);
        Ok(())
    }

    async fn take_part(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let number = worker.who - 1;
        let site = &self.sites[number];
        let transactions = TwoPhase::new(client, PATH);
        let mut invitations = transactions.invitations(site.as_str());
        let invited = worker.unless_stopped(invitations.next()).await?;
        let Some(Ok(transaction)) = invited else {
            worker.pause().await;
            return Ok(());
        };
        if worker.random.random_bool(0.5) {
            // Late, while others have voted.
            worker.work().await;
        }
        let mut witness = Site {
            number,
            refuses: worker.random.random_ratio(1, 4),
            notes: self.notes.clone(),
        };
        let part = transaction.participate(&mut witness);
        match worker.unless_stopped(part).await? {
            Ok(decision) => self.notes.told(transaction.id(), Some(number), decision),
            Err(error) => {
                worker.note(What::Failed(error.to_string()));
                worker.pause().await;
            }
        }
        Ok(())
    }
}

impl Recipe for Commits {
    const NAME: &'static str = "two-phase";

    fn new(plan: &Plan) -> Self {
        Self {
            notes: Notes::default(),
            sites: (1..plan.workers).map(|who| format!("site{who}")).collect(),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        if worker.who > 0 {
            self.take_part(worker, client).await?;
        } else {
            let stopped = worker.stopped();
            let coordinated = tokio::select! {
                biased;
                coordinated = self.coordinate(worker, client) => coordinated,
                () = stopped => return Err(Gone),
            };
            if let Err(error) = coordinated {
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
        let notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        check_transactions(&notes, self.sites.len())
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let transactions = TwoPhase::new(client, PATH);
        let all = transactions
            .list()
            .await
            .map_err(|error| error.to_string())?;
        for status in all {
            for (number, site) in self.sites.iter().enumerate() {
                if let Some(ballot) = status.sites.get(site).and_then(|site| site.ballot.as_ref()) {
                    let stands = Deed::Stands(ballot.vote == Vote::Commit);
                    self.notes.add(&status.id, Some(number), stands);
                }
            }
            if let Some(decision) = status.decision {
                self.notes.told(&status.id, None, decision);
            }
        }
        Ok(())
    }

    fn may_stay(&self, _: &str) -> bool {
        // Transactions are kept until a user deletes them.
        true
    }
}
