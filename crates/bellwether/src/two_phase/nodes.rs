//! The nodes of a transaction: their names and data, and how the decision follows from the votes.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node::data::{self, Who, cut_reason};
use crate::session::telemetry::Outcome;

/// The process that counts the votes.
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

/// The consequence for a transaction if a site dies before its vote.
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
pub(super) struct TransactionSpec {
    version: u32,
    pub(super) sites: BTreeSet<String>,
    pub(super) form: Form,
    pub(super) dead_site: DeadSite,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    pub(super) by: Who,
    /// The user who cleaned up before every site had applied the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forgotten_by: Option<Who>,
}

impl TransactionSpec {
    pub(super) fn new(
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

    /// Returns the time after the beginning when missing votes count as votes to abort.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit_ms.map(Duration::from_millis)
    }

    /// The place of a site in the order of names.
    pub(super) fn rank(&self, site: &str) -> u32 {
        let before = self.sites.iter().take_while(|name| *name != site).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    pub(super) fn to_data(&self, payload: &[u8]) -> Vec<u8> {
        data::to_data(self, payload)
    }

    /// The spec and the payload; `None` if another program wrote the data.
    pub(super) fn from_data(data: &[u8]) -> Option<(Self, &[u8])> {
        data::from_data(data)
    }
}

/// The vote of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Prepared: the site can commit even if it crashes from now on.
    Commit,
    /// Refused, for this reason. The first 4 KiB of it are kept.
    Abort(String),
}

impl Vote {
    /// Returns the vote with no more of a reason than is kept.
    pub(super) fn cut(self) -> Self {
        match self {
            Self::Commit => Self::Commit,
            Self::Abort(reason) => Self::Abort(cut_reason(&reason).to_owned()),
        }
    }
}

/// The end of a transaction, for every site alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Every site has voted for it.
    Commit,
    /// Some site has not.
    Abort,
}

impl Decision {
    /// The outcome of a call that returns the decision.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome::named(match self {
            Self::Commit => "commit",
            Self::Abort => "abort",
        })
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commit => "commit",
            Self::Abort => "abort",
        })
    }
}

/// A vote that was cast, which never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ballot {
    /// The vote.
    pub vote: Vote,
    /// The process that cast it.
    pub by: Who,
    /// True if the site itself voted. Otherwise another process has voted to abort in its place, because it was dead or late.
    pub is_own: bool,
}

impl Ballot {
    /// The decision by these votes: abort with the first vote to abort, commit when no vote is missing. Votes never change, so every
    /// process that can decide gets the same decision.
    pub(super) fn count<'a>(votes: impl IntoIterator<Item = Option<&'a Self>>) -> Option<Decision> {
        let mut is_missing = false;
        for ballot in votes {
            match ballot.map(|ballot| &ballot.vote) {
                Some(Vote::Abort(_)) => return Some(Decision::Abort),
                Some(Vote::Commit) => {}
                None => is_missing = true,
            }
        }
        (!is_missing).then_some(Decision::Commit)
    }

    pub(super) fn to_data(&self) -> Vec<u8> {
        let (vote, reason) = match &self.vote {
            Vote::Commit => (Decision::Commit, None),
            Vote::Abort(reason) => (Decision::Abort, Some(reason.clone())),
        };
        let record = BallotRecord {
            version: 1,
            vote,
            reason,
            is_own: self.is_own,
            by: self.by.clone(),
        };
        serde_json::to_vec(&record).expect("strings and numbers are JSON")
    }

    /// `None` if another program wrote it.
    pub(super) fn from_data(data: &[u8]) -> Option<Self> {
        let record: BallotRecord = serde_json::from_slice(data).ok()?;
        Some(Self {
            vote: match record.vote {
                Decision::Commit => Vote::Commit,
                Decision::Abort => Vote::Abort(record.reason.unwrap_or_default()),
            },
            by: record.by,
            is_own: record.is_own,
        })
    }
}

/// The data of a vote's node.
#[derive(Serialize, Deserialize)]
struct BallotRecord {
    version: u32,
    vote: Decision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    is_own: bool,
    by: Who,
}

/// The data of the decision's node.
#[derive(Serialize, Deserialize)]
pub(super) struct Verdict {
    version: u32,
    pub(super) decision: Decision,
    by: Who,
}

impl Verdict {
    pub(super) fn new(decision: Decision, by: Who) -> Self {
        Self {
            version: 1,
            decision,
            by,
        }
    }

    pub(super) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// `None` if another program wrote it.
    pub(super) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// The node of the decision.
pub(super) const DECISION: &str = "decision";

const VOTE: &str = "vote-";
const APPLIED: &str = "applied-";
const HERE: &str = "here-";
const COORDINATOR: &str = "coordinator-";

/// The meaning of the name of a node. Other names are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child<'a> {
    Decision,
    /// The vote of a site.
    Vote(&'a str),
    /// A site has applied the decision.
    Applied(&'a str),
    /// A session takes part as this site.
    Here(&'a str),
    /// A session counts the votes.
    Coordinator,
}

impl<'a> Child<'a> {
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        if name == DECISION {
            return Some(Self::Decision);
        }
        if let Some(site) = name.strip_prefix(VOTE) {
            return Some(Self::Vote(site));
        }
        if let Some(site) = name.strip_prefix(APPLIED) {
            return Some(Self::Applied(site));
        }
        if let Some(rest) = name.strip_prefix(HERE) {
            // What follows the name of the site is an id without a dash.
            return rest.rsplit_once('-').map(|(site, _)| Self::Here(site));
        }
        name.starts_with(COORDINATOR).then_some(Self::Coordinator)
    }
}

pub(super) fn vote(site: &str) -> String {
    format!("{VOTE}{site}")
}

pub(super) fn applied(site: &str) -> String {
    format!("{APPLIED}{site}")
}

/// The prefix of the presence nodes of a site.
pub(super) fn here(site: &str) -> String {
    format!("{HERE}{site}-")
}

/// The first part of the names of coordinators.
pub(super) fn coordinator() -> String {
    COORDINATOR.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(vote: Vote) -> Ballot {
        Ballot {
            vote,
            by: Who::here(7),
            is_own: true,
        }
    }

    #[test]
    fn commit_takes_every_vote_and_abort_takes_one() {
        let commit = ballot(Vote::Commit);
        let abort = ballot(Vote::Abort("no".into()));
        let (yes, no) = (Some(&commit), Some(&abort));
        assert_eq!(Ballot::count([yes, yes]), Some(Decision::Commit));
        assert_eq!(Ballot::count([yes, None]), None);
        assert_eq!(Ballot::count([None, None]), None);
        assert_eq!(Ballot::count([None, no, None]), Some(Decision::Abort));
        assert_eq!(Ballot::count([yes, no]), Some(Decision::Abort));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for vote in [Vote::Commit, Vote::Abort("a reason".into())] {
            let ballot = ballot(vote);
            assert_eq!(Ballot::from_data(&ballot.to_data()), Some(ballot));
        }
        assert_eq!(Ballot::from_data(b"commit"), None);
        let verdict = Verdict::new(Decision::Abort, Who::here(7)).to_data();
        let read = Verdict::from_data(&verdict).unwrap();
        assert_eq!(read.decision, Decision::Abort);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for site in ["a", "here-b-", "-", "vote-c"] {
            assert_eq!(Child::parse(&vote(site)), Some(Child::Vote(site)));
            assert_eq!(Child::parse(&applied(site)), Some(Child::Applied(site)));
            let here = format!("{}00000000000000ff", here(site));
            assert_eq!(Child::parse(&here), Some(Child::Here(site)));
        }
        let coordinator = format!("{}00ff", coordinator());
        assert_eq!(Child::parse(&coordinator), Some(Child::Coordinator));
        assert_eq!(Child::parse(DECISION), Some(Child::Decision));
        assert_eq!(Child::parse("foreign"), None);
    }
}
