//! Errors of shared state: counters, configuration, names, groups and caches.

use bellwether_client as zk;

use super::{ConnectError, PathError};

/// Why a call of [`Counter`](crate::Counter), [`Config`](crate::Config), [`ConfigFolder`](crate::ConfigFolder),
/// [`Names`](crate::Names), [`Group`](crate::Group) or [`Cache`](crate::Cache) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum StateError {
    /// The path or a name in it names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// Another member has this name. Use another name, or wait until it is free.
    #[error("the name {path} is taken")]
    NameTaken { path: String },
    /// The data, or the list of watched nodes, does not fit into one request. Write or watch less at once.
    #[error("{bytes} bytes for {path}, the limit is {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The sum would be out of range. The counter is unchanged.
    #[error("the sum at {path} is out of range")]
    OutOfRange { path: String },
    /// The session has as many ephemeral nodes as the servers can remove in one transaction. Release some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and there is no room for {path}"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The data was not written by this recipe, or the value cannot be encoded. Inspect the node with other tools.
    #[error("the data of {path} cannot be decoded or encoded")]
    Unreadable {
        path: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The session had ended, and no new session could be opened. Nothing was written; try later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The session ended before the answer: the write took effect once, or not at all. Read, then decide.
    #[error("no answer; the write at {path} may have taken effect or not")]
    OutcomeUnknown { path: String, source: zk::Error },
    /// The server refused; the source says why. A retry of the same call will not help.
    #[error("the server refused {path}")]
    Refused { path: String, source: zk::Error },
}

impl StateError {
    /// Whether the same call may succeed later: there is no session at the moment, or the name is taken.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::NameTaken { .. } => true,
            _ => false,
        }
    }
}
