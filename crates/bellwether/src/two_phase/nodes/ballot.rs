//! Votes and the decision, and how the decision follows from the votes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::node::data::{Who, cut_reason};
use crate::session::telemetry::Outcome;

/// The vote of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It has prepared everything, and can commit even if it crashes from now on.
    Commit,
    /// It cannot, or will not, for this reason. The first 4 KiB of it are kept.
    Abort(String),
}

impl Vote {
    /// With no more of a reason than is kept.
    pub(in crate::two_phase) fn cut(self) -> Self {
        match self {
            Self::Commit => Self::Commit,
            Self::Abort(reason) => Self::Abort(cut_reason(&reason).to_owned()),
        }
    }
}

/// How a transaction ends, for every site alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Every site has voted for it.
    Commit,
    /// At least one has not.
    Abort,
}

impl Decision {
    /// The outcome of a call that returns the decision.
    pub(in crate::two_phase) fn outcome(&self) -> Outcome {
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
    /// Whether the site itself voted. Otherwise another process has voted to abort in its place, because it was dead or late.
    pub is_own: bool,
}

impl Ballot {
    /// The decision by these votes: abort with the first vote to abort, commit when no vote is missing. Votes never change, so every
    /// process that can decide gets the same decision.
    pub(in crate::two_phase) fn count<'a>(
        votes: impl IntoIterator<Item = Option<&'a Self>>,
    ) -> Option<Decision> {
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

    pub(in crate::two_phase) fn to_data(&self) -> Vec<u8> {
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
    pub(in crate::two_phase) fn from_data(data: &[u8]) -> Option<Self> {
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
pub(in crate::two_phase) struct Verdict {
    version: u32,
    pub(in crate::two_phase) decision: Decision,
    by: Who,
}

impl Verdict {
    pub(in crate::two_phase) fn new(decision: Decision, by: Who) -> Self {
        Self {
            version: 1,
            decision,
            by,
        }
    }

    pub(in crate::two_phase) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// `None` if another program wrote it.
    pub(in crate::two_phase) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
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
}
