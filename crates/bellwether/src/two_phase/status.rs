//! The status of a transaction.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::node::data::Who;
use crate::two_phase::nodes::ballot::{Ballot, Decision};
use crate::two_phase::nodes::child::Child;
use crate::two_phase::nodes::transaction_spec::{Form, TransactionSpec};

/// The status of a transaction, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The id of the transaction.
    pub id: String,
    /// Who counts the votes.
    pub form: Form,
    /// The sites, by their names.
    pub sites: BTreeMap<String, SiteStatus>,
    /// The decision; `None` while there is none.
    pub decision: Option<Decision>,
    /// The payload.
    pub payload: Vec<u8>,
    /// Who began it.
    pub begun_by: Who,
    /// When it began, by the clock of the servers.
    pub begun: SystemTime,
    /// From when on missing votes count as votes to abort, by the clock of the servers.
    pub due: Option<SystemTime>,
    /// How many coordinators count the votes now.
    pub coordinators: usize,
    /// Who has cleaned up by force, before every site was done. Only the decision has been kept.
    pub forgotten_by: Option<Who>,
}

/// The status of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteStatus {
    /// Whether a session takes part as this site now.
    pub is_here: bool,
    /// Its vote, if there is one.
    pub ballot: Option<Ballot>,
    /// Whether it has applied the decision.
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

    /// Whether it is decided, and every site has done its part.
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
