//! Two-phase commit: all sites learn the same decision, only what all have voted for is committed, and every transaction comes to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::two_phase::{
    DeadSite, Decision, Form, Invitation, Invitations, Participant, Proposal, Status, Vote,
};
use bellwether::{Client, Error, ErrorKind, TwoPhase};
use bellwether_testkit::History;
use bellwether_testkit::history::transactions::{Deed, Note, check_ends, check_transactions};
use futures_util::StreamExt as _;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use tokio::time::timeout;

use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Phase, Worker};

const PATH: &str = "/sim/transactions";

/// Worker 0 begins transactions, coordinates and forgets them. The others are sites, and sometimes coordinate too. When the faults are over,
/// no transaction begins, and every one must be decided, and applied at every site.
#[derive(Debug, Clone)]
pub(super) struct Commits {
    notes: TransactionNotes,
    sites: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct TransactionNotes(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    notes: Vec<Note>,
    /// The transactions that have begun for certain.
    begun: BTreeSet<String>,
    /// The sites at which each transaction was applied.
    applied: BTreeMap<String, BTreeSet<usize>>,
}

impl TransactionNotes {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, transaction: &str, site: Option<usize>, deed: Deed) {
        let mut noted = self.noted();
        if let (Some(site), Deed::Applies(_)) = (site, deed) {
            let applied = noted.applied.entry(transaction.to_owned());
            applied.or_default().insert(site);
        }
        noted.notes.push(Note {
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
    notes: TransactionNotes,
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
    /// Whether a transaction may have been forgotten: every site has applied it.
    fn may_be_forgotten(&self, id: &str) -> bool {
        let noted = self.notes.noted();
        let applied = noted.applied.get(id);
        applied.is_some_and(|applied| applied.len() == self.sites.len())
    }

    /// Takes the answer that there is no such transaction for `None`, if it may have been forgotten.
    fn unless_forgotten<T>(&self, id: &str, result: Result<T, Error>) -> Result<Option<T>, Error> {
        match result {
            Err(Error {
                kind: ErrorKind::NotFound,
                ..
            }) if self.may_be_forgotten(id) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Begins a transaction, and most of the time also decides it.
    async fn coordinate(&self, worker: &mut Worker, client: &Client) -> Result<(), Error> {
        let random = &mut worker.random;
        let transactions = TwoPhase::new(client, PATH)
            .form([Form::Coordinator, Form::EverySite][random.random_range(0..2)])
            .dead_site([DeadSite::Abort, DeadSite::Wait][random.random_range(0..2)])
            .deadline(Duration::from_millis(random.random_range(200..30_000)));
        let mut coordinator = transactions.begin(self.sites.clone(), "").await?;
        let id = coordinator.id().to_owned();
        self.notes.noted().begun.insert(id);
        let decision = match worker.random.random_range(0..8) {
            // Leaves the decision to other coordinators, or to the sites after the deadline.
            0 => return Ok(()),
            1 => coordinator.abort("changed its mind").await?,
            _ => coordinator.decide().await?,
        };
        self.notes.told(coordinator.id(), None, decision);
        if worker.random.random_ratio(1, 4) {
            self.forget(&transactions).await?;
        }
        Ok(())
    }

    /// Forgets the transactions that are done at every site. Returns how many are not.
    async fn forget(&self, transactions: &TwoPhase) -> Result<usize, Error> {
        let (done, open): (Vec<_>, Vec<_>) = transactions
            .list()
            .await?
            .into_iter()
            .partition(Status::is_done);
        for status in done {
            self.stands(&status);
            let forgotten = transactions.transaction(&status.id).forget().await;
            self.unless_forgotten(&status.id, forgotten)?;
        }
        Ok(open.len())
    }

    /// Records the votes and the decision that the servers have.
    fn stands(&self, status: &Status) {
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

    /// Decides a transaction that has another coordinator, or none.
    async fn take_over(&self, worker: &mut Worker, transactions: &TwoPhase) -> Result<(), Error> {
        let in_doubt = transactions.in_doubt().await?;
        let Some(status) = in_doubt.choose(&mut worker.random) else {
            return Ok(());
        };
        let transaction = transactions.transaction(&status.id);
        let way = match worker.is_calm() {
            true => 2,
            false => worker.random.random_range(0..16),
        };
        let deciding = async {
            match way {
                // Only the decision is kept: sites that return learn it.
                0 => transaction.forget_by_force().await,
                1 => {
                    let mut coordinator = transaction.coordinate().await?;
                    coordinator.abort("another has given up").await
                }
                _ => transaction.coordinate().await?.decide().await,
            }
        };
        let decided = match worker.is_calm() {
            true => Ok(deciding.await),
            false => timeout(worker.moment(), deciding).await,
        };
        let Ok(decided) = decided else {
            return Ok(());
        };
        if let Some(decision) = self.unless_forgotten(&status.id, decided)? {
            self.notes.told(&status.id, None, decision);
        }
        Ok(())
    }

    /// When the faults are over: decides what is left, and waits until every site has applied it.
    async fn end(&self, worker: &mut Worker, client: &Client) -> Result<(), Error> {
        let transactions = TwoPhase::new(client, PATH);
        while self.forget(&transactions).await? > 0 {
            self.take_over(worker, &transactions).await?;
            worker.pause().await;
        }
        Ok(())
    }

    /// Takes part in a transaction, and learns the decision. When the faults are over: in all that are left for it to apply.
    async fn take_part(&self, worker: &mut Worker, client: &Client) -> Result<Round, Error> {
        let site = &self.sites[worker.who - 1];
        let transactions = TwoPhase::new(client, PATH);
        if worker.random.random_ratio(1, 6) {
            self.take_over(worker, &transactions).await?;
        }
        let mut invitations = transactions.invitations(site.as_str());
        loop {
            if worker.is_calm() {
                let all = transactions.list().await?;
                let has_applied = |status: &Status| status.sites[site].has_applied;
                if all.iter().all(has_applied) {
                    worker.pause().await;
                    return Ok(Round::Done);
                }
            }
            if let Some(invitation) = next(worker, &mut invitations).await {
                self.accept(worker, &invitation?).await?;
                if !worker.is_calm() {
                    return Ok(Round::Done);
                }
            }
        }
    }

    /// Votes, learns the decision, and applies it.
    async fn accept(&self, worker: &mut Worker, invitation: &Invitation) -> Result<(), Error> {
        if worker.random.random_bool(0.5) {
            // Late, while others have voted.
            worker.work().await;
        }
        let number = worker.who - 1;
        let mut site = Site {
            number,
            refuses: worker.random.random_ratio(1, 4),
            notes: self.notes.clone(),
        };
        match invitation.participate(&mut site).await {
            Ok(decision) => self.notes.told(invitation.id(), Some(number), decision),
            Err(error) => {
                self.unless_forgotten(invitation.id(), Err::<(), _>(error))?;
            }
        }
        Ok(())
    }
}

/// The next invitation; `None` if it is time to look whether there will be any.
async fn next(
    worker: &mut Worker,
    invitations: &mut Invitations,
) -> Option<Result<Invitation, Error>> {
    let is_calm = worker.is_calm();
    let mut phase = worker.phase.clone();
    let looks = async {
        match is_calm {
            true => worker.pause().await,
            false => drop(phase.wait_for(|phase| *phase >= Phase::Calm).await),
        }
    };
    tokio::select! {
        biased;
        next = invitations.next() => next,
        () = looks => None,
    }
}

impl Recipe for Commits {
    const NAME: &'static str = "two-phase";

    fn new(plan: &Plan) -> Self {
        Self {
            notes: TransactionNotes::default(),
            sites: (1..plan.workers).map(|who| format!("site{who}")).collect(),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let stopped = worker.stopped();
        let act = async {
            if worker.who > 0 {
                return self.take_part(worker, client).await;
            }
            if !worker.is_calm() {
                self.coordinate(worker, client).await?;
            }
            if worker.is_calm() {
                self.end(worker, client).await?;
                worker.pause().await;
            }
            Ok(Round::Done)
        };
        let acted = tokio::select! {
            biased;
            acted = act => acted,
            () = stopped => return Err(Gone),
        };
        match acted {
            Ok(round) => Ok(round),
            Err(error) => {
                worker.failed(&error);
                worker.pause().await;
                Ok(Round::Failed)
            }
        }
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        check_transactions(&self.notes.noted().notes, self.sites.len())
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let transactions = TwoPhase::new(client, PATH);
        let left = self.forget(&transactions).await;
        let left = left.map_err(|error| error.to_string())?;
        if left > 0 {
            return Err(format!("{left} transactions never came to an end"));
        }
        let noted = self.notes.noted();
        let begun = noted.begun.iter().map(String::as_str);
        check_ends(&noted.notes, begun, self.sites.len())
    }
}
