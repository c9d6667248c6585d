//! The spec of a transaction, fixed when it begins: the data of its node.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node::data::{self, Who};

/// Who counts the votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Form {
    /// A coordinator does, and announces the decision; the sites only wait for that. The number of messages grows as the
    /// number of sites.
    #[default]
    Coordinator,
    /// Every site counts for itself. No coordinator is needed after the beginning, and an abort is known with the first vote for it; the
    /// number of messages grows as the square of the number of sites.
    EverySite,
}

/// What happens to a transaction when a site dies before its vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadSite {
    /// The transaction is aborted as soon as a counting process sees that the site is dead.
    #[default]
    Abort,
    /// The transaction waits for the site to return, until the deadline.
    Wait,
}

/// The spec of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::two_phase) struct TransactionSpec {
    version: u32,
    pub(in crate::two_phase) sites: BTreeSet<String>,
    pub(in crate::two_phase) form: Form,
    pub(in crate::two_phase) dead_site: DeadSite,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    pub(in crate::two_phase) by: Who,
    /// Who has cleaned up before every site had applied the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::two_phase) forgotten_by: Option<Who>,
}

impl TransactionSpec {
    pub(in crate::two_phase) fn new(
        sites: BTreeSet<String>,
        form: Form,
        dead_site: DeadSite,
        limit: Option<Duration>,
        by: Who,
    ) -> Self {
        let in_ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self {
            version: 1,
            sites,
            form,
            dead_site,
            limit_ms: limit.map(in_ms),
            by,
            forgotten_by: None,
        }
    }

    /// How long after the beginning missing votes count as votes to abort.
    pub(in crate::two_phase) fn limit(&self) -> Option<Duration> {
        self.limit_ms.map(Duration::from_millis)
    }

    /// The place of a site in the order of names.
    pub(in crate::two_phase) fn rank(&self, site: &str) -> u32 {
        let before = self.sites.iter().take_while(|name| *name != site).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    pub(in crate::two_phase) fn to_data(&self, payload: &[u8]) -> Vec<u8> {
        data::to_data(self, payload)
    }

    /// The spec and the payload; `None` if another program wrote the data.
    pub(in crate::two_phase) fn from_data(data: &[u8]) -> Option<(Self, &[u8])> {
        data::from_data(data)
    }
}
