//! What calls report, by what a caller would do about it.

use std::time::Duration;

use zookeeper_client as zk;

use crate::path::PathError;

/// Why [`connect`](crate::connect) opened no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ConnectError {
    /// The connect string cannot be read. Correct it.
    #[error("bad connect string {address:?}")]
    BadAddress { address: String, source: zk::Error },
    /// No server answered. Look whether one runs there, or try again.
    #[error("no server answers at {address}")]
    Unreachable { address: String, source: zk::Error },
    /// A server answered and refused. Trying again as it stands will not help.
    #[error("no session at {address}")]
    Refused { address: String, source: zk::Error },
}

/// Why [`Lock::acquire`](crate::Lock::acquire) and its sisters returned no guard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum AcquireError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The wait limit passed and the place in the queue is given up. Acquire again to queue anew.
    #[error("no turn at {path} within {limit:?}")]
    TimedOut { path: String, limit: Duration },
    /// Another hand deleted our place in the queue. Acquire again to queue anew.
    #[error("removed from the queue at {path}")]
    Removed { path: String },
    /// The session is gone, and every guard taken through it. Connect again first.
    #[error("session ended in the queue at {path}")]
    SessionEnded { path: String },
    /// The connection broke again and again. The place in the queue is given up; try later.
    #[error("connection lost too often in the queue at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The directory has numbered its children almost to the limit of the protocol. Use a new path, or delete
    /// the directory while nobody uses it: a new one counts from zero.
    #[error("sequence numbers at {path} are used up")]
    SequenceUsedUp { path: String },
    /// The server refused; the source says why. Trying again as it stands will not help.
    #[error("cannot queue at {path}")]
    Refused { path: String, source: zk::Error },
}

/// What [`LockGuard::release`](crate::LockGuard::release) reports. In every case the hold has ended, or will
/// with the session at the latest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ReleaseError {
    /// The hold had ended before: another hand deleted the node, and somebody else may have held since.
    #[error("{path} was no longer held at release")]
    NotHeld { path: String },
    /// The session is gone, and the hold with it; somebody else may have held since.
    #[error("session ended before the release of {path}")]
    SessionEnded { path: String },
    /// The server refused; the node stays until the session ends.
    #[error("cannot release {path}")]
    Refused { path: String, source: zk::Error },
}

/// What an error of one request says about that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The reply did not come: it may have taken effect, or not.
    Unknown,
    /// The session is over, and its ephemeral nodes are or will be gone.
    SessionEnded,
    /// The server answered no.
    Refused,
}

/// Sorts an error of `zookeeper-client` by what may have happened on the server.
pub(crate) fn outcome(error: &zk::Error) -> Outcome {
    match error {
        // A connection that falls silent or breaks in the socket ends its requests with a custom error.
        zk::Error::ConnectionLoss | zk::Error::Custom(_) => Outcome::Unknown,
        zk::Error::SessionExpired
        | zk::Error::SessionMoved
        | zk::Error::ClientClosed
        | zk::Error::AuthFailed
        | zk::Error::Timeout
        | zk::Error::NoHosts => Outcome::SessionEnded,
        _ => Outcome::Refused,
    }
}
