//! What is settled when a transaction begins: the data of its node.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::headed;
use crate::who::Who;

/// Who counts the votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Form {
    /// A coordinator does, and announces the decision; the sites only wait for that. The number of messages grows as the
    /// number of sites.
    #[default]
    Coordinator,
    /// Every site does, for itself. Nobody has to stay after the beginning, and an abort is known with the first vote for it; the
    /// number of messages grows as the square of the number of sites.
    EverySite,
}

/// What becomes of a transaction when a site dies that has not voted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadSite {
    /// It is aborted as soon as somebody who counts sees that the site has gone.
    #[default]
    Abort,
    /// It waits for the site to come back, until the deadline.
    Wait,
}

/// The terms of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    version: u32,
    /// An id of the call that began it, by which that call knows its own.
    beginning: String,
    pub(super) sites: BTreeSet<String>,
    pub(super) form: Form,
    pub(super) dead_site: DeadSite,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    pub(super) by: Who,
    /// Who has cleaned up before every site had applied the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forgotten_by: Option<Who>,
}

impl Terms {
    pub(super) fn new(
        beginning: String,
        sites: BTreeSet<String>,
        form: Form,
        dead_site: DeadSite,
        limit: Option<Duration>,
        by: Who,
    ) -> Self {
        let in_ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self {
            version: 1,
            beginning,
            sites,
            form,
            dead_site,
            limit_ms: limit.map(in_ms),
            by,
            forgotten_by: None,
        }
    }

    /// How long after the beginning the missing votes may be taken for votes to abort.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit_ms.map(Duration::from_millis)
    }

    /// Whether both were begun by the same call.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.beginning == other.beginning
    }

    /// The place of a site in the order of names.
    pub(super) fn rank(&self, site: &str) -> u32 {
        let before = self.sites.iter().take_while(|name| *name != site).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    pub(super) fn to_data(&self, payload: &[u8]) -> Vec<u8> {
        headed::to_data(self, payload)
    }

    /// The terms and the payload; `None` if somebody else's program wrote it.
    pub(super) fn from_data(data: &[u8]) -> Option<(Self, &[u8])> {
        headed::from_data(data)
    }
}
