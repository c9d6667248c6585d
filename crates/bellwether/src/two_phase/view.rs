//! Reads a transaction repeatedly, and counts its votes: its status and its progress.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use futures_util::stream::unfold;
use tokio::select;

use crate::error::{Error, Failure};
use crate::events::Events;
use crate::node::data::Who;
use crate::request::OpenNode;
use crate::session::Moment;
use crate::session::retry::NodeEvent;
use crate::two_phase::nodes::{
    Ballot, Child, DeadSite, Decision, Form, TransactionSpec, Verdict, Vote,
};
use crate::two_phase::roles::Presence;
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

/// The choice whether to set watches for the next change.
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

    /// Returns the time when it began, by the clock of the servers.
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
    ) -> Result<Decision, Failure> {
        if let Some(decision) = self.status.decision {
            return Ok(decision);
        }
        loop {
            presence.keep().await?;
            self.update(Then::Watch).await?;
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
    pub(super) async fn try_decide(&mut self) -> Result<Option<Decision>, Failure> {
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
    pub(super) async fn abort(&mut self, reason: &str) -> Result<(), Failure> {
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
    async fn stand_in(&self, sites: Vec<String>, reason: &str) -> Result<(), Failure> {
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

    pub(super) async fn update(&mut self, then: Then) -> Result<(), Failure> {
        let place = self.transaction.place().clone();
        loop {
            let opened = place.open_in_time().await?;
            match self.list(&opened, then).await {
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

    async fn list(&mut self, opened: &OpenNode, then: Then) -> Result<ReadOutcome, zk::Error> {
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

/// The status of a transaction, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The id of the transaction.
    pub id: String,
    /// The process that counts the votes.
    pub form: Form,
    /// The sites, by their names.
    pub sites: BTreeMap<String, SiteStatus>,
    /// The decision; `None` while there is none.
    pub decision: Option<Decision>,
    /// The payload.
    pub payload: Vec<u8>,
    /// The user who began it.
    pub begun_by: Who,
    /// The time when it began, by the clock of the servers.
    pub begun: SystemTime,
    /// The time after which missing votes count as votes to abort, by the clock of the servers.
    pub due: Option<SystemTime>,
    /// The number of coordinators that count the votes now.
    pub coordinators: usize,
    /// The user who cleaned up by force, before every site was done. Only the decision has been kept.
    pub forgotten_by: Option<Who>,
}

/// The status of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteStatus {
    /// True if a session takes part as this site now.
    pub is_here: bool,
    /// The vote of the site, if there is one.
    pub ballot: Option<Ballot>,
    /// True if it has applied the decision.
    pub has_applied: bool,
}

impl Status {
    pub(super) fn new(id: &str, spec: &TransactionSpec, payload: &[u8], begun_ms: i64) -> Self {
        let sites = spec.sites.iter().cloned();
        let begun_ms = u64::try_from(begun_ms).unwrap_or_default();
        let begun = SystemTime::UNIX_EPOCH + Duration::from_millis(begun_ms);
        Self {
            id: id.to_owned(),
            form: spec.form,
            sites: sites.map(|site| (site, SiteStatus::default())).collect(),
            decision: None,
            payload: payload.to_owned(),
            begun_by: spec.by.clone(),
            begun,
            due: spec.limit().and_then(|limit| begun.checked_add(limit)),
            coordinators: 0,
            forgotten_by: spec.forgotten_by.clone(),
        }
    }

    /// The sites that have not voted.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.sites.iter().filter(|(_, site)| site.ballot.is_none());
        missing.map(|(name, _)| name.as_str())
    }

    /// The sites that have not applied the decision yet.
    pub fn unapplied(&self) -> impl Iterator<Item = &str> {
        let unapplied = self.sites.iter().filter(|(_, site)| !site.has_applied);
        unapplied.map(|(name, _)| name.as_str())
    }

    /// Returns whether it is decided, and every site has done its part.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.decision.is_some() && self.unapplied().next().is_none()
    }

    /// The decision by the votes; `None` if it still depends on missing votes.
    #[must_use]
    pub fn outcome(&self) -> Option<Decision> {
        Ballot::count(self.sites.values().map(|site| site.ballot.as_ref()))
    }

    /// Takes up what a list of names says. Votes and the decision have to be read by themselves.
    pub(super) fn take_up(&mut self, names: &[String]) {
        self.coordinators = 0;
        for site in self.sites.values_mut() {
            (site.is_here, site.has_applied) = (false, false);
        }
        for name in names {
            match Child::parse(name) {
                Some(Child::Here(site)) => self.with_site(site, |site| site.is_here = true),
                Some(Child::Applied(site)) => self.with_site(site, |site| site.has_applied = true),
                Some(Child::Coordinator) => self.coordinators += 1,
                Some(Child::Decision | Child::Vote(_)) | None => {}
            }
        }
    }

    pub(super) fn with_site(&mut self, name: &str, change: impl FnOnce(&mut SiteStatus)) {
        // Another program may have created a node for a site that has no part in it.
        if let Some(site) = self.sites.get_mut(name) {
            change(site);
        }
    }
}

/// A stream of the status of a transaction: which sites are present, have voted, are missing, the decision, and which sites are done. See
/// [`Transaction::progress`].
///
/// It continues over lost connections and session expiry, and ends when every site is done, or after an error.
pub type TransactionProgress = Events<Result<Status, Error>>;

impl TransactionProgress {
    pub(super) fn of(transaction: Transaction) -> Self {
        let watching = StatusWatch::Begin(transaction);
        Self::from_stream(unfold(watching, StatusWatch::next))
    }
}

enum StatusWatch {
    Begin(Transaction),
    /// The status that was shown last, and the view that reads it.
    On(Box<(Status, View)>),
    End,
}

impl StatusWatch {
    async fn next(self) -> Option<(Result<Status, Error>, Self)> {
        let (shown, mut view) = match self {
            Self::End => return None,
            Self::Begin(transaction) => match begin(&transaction).await {
                Ok(view) => (None, view),
                Err(failure) => return Some((Err(failed(failure, &transaction)), Self::End)),
            },
            Self::On(on) if on.0.is_done() => return None,
            Self::On(on) => (Some(on.0), on.1),
        };
        loop {
            view.changed(None).await;
            if let Err(failure) = view.update(Then::Watch).await {
                return Some((Err(failed(failure, view.transaction())), Self::End));
            }
            let status = view.status();
            if shown.as_ref() != Some(status) {
                let status = status.clone();
                let on = Self::On(Box::new((status.clone(), view)));
                return Some((Ok(status), on));
            }
        }
    }
}

fn failed(failure: Failure, transaction: &Transaction) -> Error {
    failure.of("transaction.progress", transaction.place().path())
}

async fn begin(transaction: &Transaction) -> Result<View, Failure> {
    transaction.open().await?;
    transaction.open_view().await
}
