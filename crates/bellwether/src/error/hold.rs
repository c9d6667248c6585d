//! Errors of holds.

use bellwether_client as zk;

use super::PathError;
use crate::node::node_data::DATA_BYTES_MAX;

/// What [`Hold::run`](crate::Hold::run) returns when the hold ended before the work was done. The work is dropped; another holder may be
/// working by now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is no longer held")]
#[non_exhaustive]
pub struct Lost {
    /// The path of the recipe.
    pub path: String,
}

/// What [`LockGuard::release`](crate::LockGuard::release) returns. In every case the hold has ended, or ends with the session at the
/// latest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ReleaseError {
    /// The hold had ended before: another client deleted the node, and there may have been another holder since.
    #[error("{path} was no longer held at release")]
    NotHeld { path: String },
    /// The session had ended, and the hold with it; there may have been another holder since.
    #[error("session ended before the release of {path}")]
    SessionEnded { path: String },
    /// The server refused; the node stays until the session ends.
    #[error("cannot release {path}")]
    Refused { path: String, source: zk::Error },
}

impl ReleaseError {
    /// Whether a repetition may succeed, from the acquisition on: the hold had ended before its work was done.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::SessionEnded { .. })
    }
}

/// Why a write under a hold was not made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum WriteError {
    /// The hold is over: nothing was written. Stop the work.
    #[error("the hold is over")]
    NotHeld,
    /// The session has ended, and the hold with it. The write may have taken effect before that.
    #[error("session ended")]
    SessionEnded,
    /// The answer was lost, and another client has deleted the receipt that would tell: the write may have taken effect. Read, then decide.
    #[error("no answer; the write may have taken effect or not")]
    OutcomeUnknown { source: zk::Error },
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The hold has no crash mark to store a note in. Set `crash_mark()` on the recipe.
    #[error("the hold has no crash mark")]
    NoMark,
    /// The node of this hold has no unique name, so the servers cannot tell it from the node of the next holder. Use a fair lock.
    #[error("a simple lock cannot guard writes")]
    NotFenced,
    /// The data is too large, for a note about a hold or for one request. Nothing was written. Write less, or in parts.
    #[error("{bytes} bytes, the limit is {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// The session has as many ephemeral nodes as the servers can remove at its end, and there is no room for a receipt. Nothing was written.
    /// Release some, or use another session.
    #[error("the ephemeral nodes of the session take {bytes} bytes, and there is no room for one")]
    TooManyEphemerals { bytes: usize },
    /// The server refused the write with this index, counted from 0, and made none of them.
    #[error("write {index} was refused")]
    Refused { index: usize, source: zk::Error },
}

impl WriteError {
    /// Whether the same write may succeed under a new hold: this hold had ended, and nothing was written. `false` where something may have
    /// been written: read, then decide.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotHeld)
    }

    /// Refuses a note or message that is too large: the servers would close the connection without a reply, each time.
    pub(crate) fn check_size(bytes: usize) -> Result<(), Self> {
        match bytes > DATA_BYTES_MAX {
            true => Err(Self::TooLarge {
                bytes,
                bytes_max: DATA_BYTES_MAX,
            }),
            false => Ok(()),
        }
    }
}
