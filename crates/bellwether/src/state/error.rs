//! What the recipes for shared state report.

use std::error::Error;

use bellwether_client as zk;

use crate::error::ConnectError;
use crate::path::PathError;

/// Why a call of [`Counter`](crate::Counter), [`Config`](crate::Config), [`ConfigFolder`](crate::ConfigFolder),
/// [`Names`](crate::Names), [`Group`](crate::Group) or [`Cache`](crate::Cache) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum StateError {
    /// The path or a name in it names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// Somebody else bears the name. Take another, or wait until it is free.
    #[error("the name {path} is taken")]
    NameTaken { path: String },
    /// What was to be written, or to be watched one by one, would not fit into one request. Write or watch less at once.
    #[error("{bytes} bytes for {path} are more than {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The counter would pass the end of its range, and was left as it is.
    #[error("the sum at {path} is out of range")]
    OutOfRange { path: String },
    /// The session has as many ephemeral nodes as the servers can remove in one transaction. Let go of some, or
    /// use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and {path} does not fit any more"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The data is not what this recipe writes, or the value cannot be written. Look at it by other means.
    #[error("the data of {path} cannot be read or written as asked")]
    Unreadable {
        path: String,
        source: Box<dyn Error + Send + Sync>,
    },
    /// The session had ended, and no other could be opened. Nothing was written; try later.
    #[error("no session to reach {path} with")]
    NoSession { path: String, source: ConnectError },
    /// The session ended before the answer: it may have been written or not, once at most. Read, then decide.
    #[error("no answer about {path}; the write may have taken effect or not")]
    OutcomeUnknown { path: String, source: zk::Error },
    /// The server refused; the source says why. Trying again as it stands will not help.
    #[error("{path} was refused")]
    Refused { path: String, source: zk::Error },
}
