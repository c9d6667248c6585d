//! A participant that records what happens to it, and may die.

use std::future::pending;
use std::sync::{Arc, Mutex};

use bellwether::TwoPhase;
use bellwether::two_phase::{Decision, Participant, Proposal, Vote};
use bellwether_testkit::history::transactions::{Deed, Note, check_ends, check_transactions};
use tokio::sync::Notify;

/// The sites, by their numbers.
pub(super) const SITES: [&str; 3] = ["a", "b", "c"];

/// Everything recorded.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    pub(super) fn take_down(&self, id: &str, site: Option<usize>, deed: Deed) {
        self.0.lock().unwrap().push(Note::now(id, site, deed));
    }

    /// A process learned the decision.
    pub(super) fn told(&self, id: &str, site: Option<usize>, decision: Decision) {
        self.take_down(id, site, Deed::Told(decision == Decision::Commit));
    }

    /// Records what the servers have kept of all transactions, and checks everything. Returns the numbers of commits and aborts.
    pub(super) async fn check(&self, transactions: &TwoPhase) -> Result<(usize, usize), String> {
        let all = transactions.list().await.unwrap();
        let mut committed = 0;
        for status in &all {
            let sites = SITES.iter().enumerate();
            for (number, name) in sites {
                if let Some(ballot) = &status.sites[*name].ballot {
                    let stands = Deed::Stands(ballot.vote == Vote::Commit);
                    self.take_down(&status.id, Some(number), stands);
                }
            }
            let decision = status.decision.expect("all are decided by now");
            self.told(&status.id, None, decision);
            committed += usize::from(decision == Decision::Commit);
        }
        let notes = self.0.lock().unwrap().clone();
        check_transactions(&notes, SITES.len())?;
        check_ends(
            &notes,
            all.iter().map(|status| status.id.as_str()),
            SITES.len(),
        )?;
        Ok((committed, all.len() - committed))
    }
}

/// One site, as long as it lives.
pub(super) struct Witness {
    pub(super) site: usize,
    pub(super) refuses: bool,
    pub(super) notes: Notes,
    /// Number of points in its handlers that it survives before it dies.
    pub(super) points_left: Option<usize>,
    pub(super) died: Arc<Notify>,
}

impl Witness {
    pub(super) fn new(site: usize, notes: &Notes) -> Self {
        Self {
            site,
            refuses: false,
            notes: notes.clone(),
            points_left: None,
            died: Arc::default(),
        }
    }

    /// The process may die here.
    async fn point(&mut self) {
        let Some(left) = self.points_left else {
            return;
        };
        self.points_left = left.checked_sub(1);
        if left == 0 {
            self.died.notify_one();
            pending::<()>().await;
        }
    }

    async fn note(&mut self, proposal: &Proposal, deed: Deed) {
        self.point().await;
        let site = Some(self.site);
        self.notes.take_down(proposal.id(), site, deed);
        self.point().await;
    }
}

impl Participant for Witness {
    type Error = std::convert::Infallible;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, Self::Error> {
        self.note(proposal, Deed::Votes(!self.refuses)).await;
        Ok(match self.refuses {
            true => Vote::Abort("will not".into()),
            false => Vote::Commit,
        })
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), Self::Error> {
        self.note(proposal, Deed::Applies(true)).await;
        Ok(())
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), Self::Error> {
        self.note(proposal, Deed::Applies(false)).await;
        Ok(())
    }
}
