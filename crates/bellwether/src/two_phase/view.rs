//! Reads a transaction repeatedly, and counts its votes.

use std::collections::BTreeSet;

use bellwether_client as zk;
use tokio::select;

use crate::request::OpenNode;
use crate::session::Moment;
use crate::session::retry::NodeEvent;
use crate::two_phase::error::TransactionError;
use crate::two_phase::nodes::ballot::{Ballot, Decision, Verdict, Vote};
use crate::two_phase::nodes::child::Child;
use crate::two_phase::nodes::transaction_spec::{DeadSite, TransactionSpec};
use crate::two_phase::roles::presence::Presence;
use crate::two_phase::status::Status;
use crate::two_phase::transaction::Transaction;

/// A transaction as one process has seen it.
#[derive(Debug)]
pub(super) struct View {
    transaction: Transaction,
    dead_site: DeadSite,
    begun_ms: i64,
    status: Status,
    /// The sites that were present at any look of this view.
    seen: BTreeSet<String>,
    event: Option<NodeEvent>,
}

/// Whether to set watches for the next change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Watch,
    Leave,
}

impl View {
    /// A view that knows only the spec.
    pub(super) fn new(
        transaction: &Transaction,
        spec: &TransactionSpec,
        payload: &[u8],
        begun_ms: i64,
    ) -> Self {
        Self {
            transaction: transaction.clone(),
            dead_site: spec.dead_site,
            begun_ms,
            status: Status::new(transaction.id(), spec, payload, begun_ms),
            seen: BTreeSet::new(),
            event: None,
        }
    }

    /// Records a vote, so that it need not be read.
    pub(super) fn know(&mut self, site: &str, ballot: &Ballot) {
        let ballot = Some(ballot.clone());
        self.status.with_site(site, |site| site.ballot = ballot);
    }

    pub(super) fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// When it began, by the clock of the servers.
    pub(super) fn begun_ms(&self) -> i64 {
        self.begun_ms
    }

    pub(super) fn status(&self) -> &Status {
        &self.status
    }

    /// Counts the votes until there is a decision, which it records, or finds recorded. From `due` on, it votes to abort in place of sites
    /// that have not voted.
    pub(super) async fn decide(
        &mut self,
        presence: &mut Presence,
        due: Option<Moment>,
    ) -> Result<Decision, TransactionError> {
        if let Some(decision) = self.status.decision {
            return Ok(decision);
        }
        loop {
            presence.keep().await?;
            self.look(Then::Watch).await?;
            if let Some(decision) = self.try_decide().await? {
                return Ok(decision);
            }
            let is_due = due.is_some_and(|due| due.left().is_zero());
            let (given_up, reason) = match is_due {
                true => (self.missing(|_| true), "no vote in time"),
                false => (self.gone(), "the site is gone"),
            };
            if !given_up.is_empty() {
                self.stand_in(given_up, reason).await?;
                continue;
            }
            select! {
                biased;
                () = self.changed(due) => {}
                // The other sites have to see that this site continues in its next session.
                () = presence.lost() => {}
            }
        }
    }

    /// Decides if what was seen is enough for that.
    pub(super) async fn try_decide(&mut self) -> Result<Option<Decision>, TransactionError> {
        if self.status.decision.is_some() {
            return Ok(self.status.decision);
        }
        let Some(outcome) = self.status.outcome() else {
            return Ok(None);
        };
        let stands = self.transaction.record(outcome).await?;
        self.status.decision = Some(stands);
        Ok(Some(stands))
    }

    /// Votes to abort in place of all sites that have not voted.
    pub(super) async fn abort(&mut self, reason: &str) -> Result<(), TransactionError> {
        self.stand_in(self.missing(|_| true), reason).await
    }

    /// Sites that were here, and have gone without a vote.
    fn gone(&self) -> Vec<String> {
        match self.dead_site {
            DeadSite::Abort => self.missing(|name| {
                let is_here = self.status.sites[name].is_here;
                !is_here && self.seen.contains(name)
            }),
            DeadSite::Wait => Vec::new(),
        }
    }

    fn missing(&self, of: impl Fn(&str) -> bool) -> Vec<String> {
        let missing = self.status.missing().filter(|name| of(name));
        missing.map(str::to_owned).collect()
    }

    /// An existing vote stays: a site that has voted meanwhile keeps its vote.
    async fn stand_in(&self, sites: Vec<String>, reason: &str) -> Result<(), TransactionError> {
        for site in sites {
            let vote = Vote::Abort(reason.to_owned());
            self.transaction.cast(&site, vote, false).await?;
        }
        Ok(())
    }

    /// Waits until something may have changed, or a moment has come.
    pub(super) async fn changed(&mut self, until: Option<Moment>) {
        let Some(event) = self.event.take() else {
            return;
        };
        let runtime = self.transaction.client().runtime();
        match until {
            Some(until) => select! {
                biased;
                _ = event => {}
                () = runtime.sleep(until.left()) => {}
            },
            None => drop(event.await),
        }
    }

    pub(super) async fn look(&mut self, then: Then) -> Result<(), TransactionError> {
        let place = self.transaction.place().clone();
        loop {
            let opened = place.open_in_time().await?;
            match self.look_through(&opened, then).await {
                Ok(ReadOutcome::Whole) => return Ok(()),
                Ok(ReadOutcome::Changed) => {}
                Ok(ReadOutcome::Unreadable(name)) => {
                    return Err(self.transaction.unreadable(&name));
                }
                Err(zk::Error::NO_NODE) => return Err(self.transaction.not_found()),
                Err(error) => place.again(&opened, error).await?,
            }
        }
    }

    async fn look_through(
        &mut self,
        opened: &OpenNode,
        then: Then,
    ) -> Result<ReadOutcome, zk::Error> {
        let zk = opened.session.zk();
        let node = opened.path.as_str();
        let names = match then {
            Then::Watch => {
                let (names, watch) = zk.children_watched(node).await?;
                self.event = Some(NodeEvent::of(watch));
                names
            }
            Then::Leave => zk.children(node).await?,
        };
        self.status.take_up(&names);
        let here = self.status.sites.iter().filter(|(_, site)| site.is_here);
        self.seen.extend(here.map(|(name, _)| name.clone()));
        // Neither a vote nor the decision changes, so each is read once. All reads are sent before the first answer.
        let unread = names.iter().filter(|name| self.is_unread(name));
        let reads: Vec<_> = unread
            .map(|name| (name, zk.get(&opened.path.child(name))))
            .collect();
        for (name, read) in reads {
            let data = match read.await {
                Ok((data, _)) => data,
                // Cleaned up meanwhile.
                Err(zk::Error::NO_NODE) => return Ok(ReadOutcome::Changed),
                Err(error) => return Err(error),
            };
            if !self.read(name, &data) {
                return Ok(ReadOutcome::Unreadable(name.clone()));
            }
        }
        Ok(ReadOutcome::Whole)
    }

    fn is_unread(&self, name: &str) -> bool {
        match Child::parse(name) {
            Some(Child::Decision) => self.status.decision.is_none(),
            Some(Child::Vote(site)) => {
                let site = self.status.sites.get(site);
                site.is_some_and(|site| site.ballot.is_none())
            }
            _ => false,
        }
    }

    /// Records the data of a child; `false` if it cannot be decoded.
    fn read(&mut self, name: &str, data: &[u8]) -> bool {
        match Child::parse(name) {
            Some(Child::Decision) => {
                self.status.decision = Verdict::from_data(data).map(|verdict| verdict.decision);
                self.status.decision.is_some()
            }
            Some(Child::Vote(site)) => {
                let ballot = Ballot::from_data(data);
                let is_readable = ballot.is_some();
                self.status.with_site(site, |site| site.ballot = ballot);
                is_readable
            }
            _ => true,
        }
    }
}

/// The outcome of a look.
enum ReadOutcome {
    Whole,
    /// Something went away between two requests.
    Changed,
    Unreadable(String),
}
