//! Errors of barriers.

use std::time::Duration;

use bellwether_client as zk;

use super::{ConnectError, PathError};

/// Why a call of [`Barrier`](crate::Barrier) or [`DoubleBarrier`](crate::DoubleBarrier) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum BarrierError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The number of members is out of range. Correct it.
    #[error("a barrier has 1 to {size_max} members, not {size}")]
    BadSize { size: usize, size_max: usize },
    /// Other members use another number of members. Agree on one.
    #[error("{path} is a barrier of {theirs} members, not of {ours}")]
    SizeDiffers {
        path: String,
        theirs: usize,
        ours: usize,
    },
    /// The path is in use for something else. Use another path.
    #[error("{path} is no double barrier")]
    NotABarrier { path: String },
    /// The wait limit passed. A member that was entering has given up its place; a member that was leaving has left.
    #[error("timed out after {limit:?} waiting at {path}")]
    TimedOut { path: String, limit: Duration },
    /// Another client deleted the node of this member: the other members continue without it.
    #[error("removed from {path}")]
    Removed { path: String },
    /// The session ended, and the membership with it. Call again: the client opens a new session.
    #[error("session ended at {path}")]
    SessionEnded { path: String },
    /// The connection was lost repeatedly, or there were too many requests. The call has given up; try later.
    #[error("connection lost too often at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The session ended before the answer: the change may have taken effect. Look, then decide.
    #[error("no answer; the change at {path} may have taken effect or not")]
    OutcomeUnknown { path: String, source: zk::Error },
    /// The data of the node would be too large: a long message, for example. Say less.
    #[error("the data of the member at {path} has {bytes} bytes, the limit is {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The line of members that want to enter has reached its limit. Try later.
    #[error("{depth} members wait to enter {path} already")]
    Crowded { path: String, depth: usize },
    /// The session has as many ephemeral nodes as the servers can remove at its end. Release some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and there is no room for one at {path}"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The server refused; the source says why. A retry of the same call will not help.
    #[error("refused at {path}")]
    Refused { path: String, source: zk::Error },
}

impl BarrierError {
    /// Whether the same call may succeed later: the session or the connection was lost, or time or room ran out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::TimedOut { .. }
            | Self::Removed { .. }
            | Self::SessionEnded { .. }
            | Self::Disconnected { .. }
            | Self::Crowded { .. } => true,
            _ => false,
        }
    }
}
