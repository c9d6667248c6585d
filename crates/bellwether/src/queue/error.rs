//! What the verbs of queues and tasks report.

use std::error::Error;
use std::time::Duration;

use bellwether_client as zk;

use crate::contender::Failure;
use crate::path::PathError;

/// Why an item was not put, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum PutError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// There are as many items as are allowed. Try later, or allow more.
    #[error("{depth} items are in {path} already")]
    Full { path: String, depth: usize },
    /// The item is larger than is allowed, or the batch than the servers take at once. Put less, or keep the bulk elsewhere
    /// and put where it is.
    #[error("{bytes} bytes for {path} are more than {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The value cannot be written as bytes. Nothing was put.
    #[error("an item for {path} cannot be written")]
    NotWritable {
        path: String,
        source: Box<dyn Error + Send + Sync>,
    },
    /// The directory has numbered its children almost to the limit of the protocol. Use a new path, or delete the
    /// directory of items when it is empty: a new one counts from zero.
    #[error("sequence numbers at {path} are used up")]
    SequenceUsedUp { path: String },
    /// The session has as many ephemeral nodes as the servers can remove at its end, and a receipt does not fit any more. Put
    /// fewer at a time, let go of some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and a receipt at {path} does not fit any more"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The session had ended before: nothing was put. Connect again first.
    #[error("session ended before the put at {path}")]
    SessionEnded { path: String },
    /// The session ended before the answer came, and the receipt with it: it was put once, or not at all. Only whoever can
    /// tell a second item from the first may put it again.
    #[error("no answer; the item may be in {path} or not")]
    OutcomeUnknown { path: String, source: zk::Error },
    /// The connection broke again and again before anything was put. Try later.
    #[error("connection lost too often before the put at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The server refused; the source says why. Trying again as it stands will not help.
    #[error("cannot put at {path}")]
    Refused { path: String, source: zk::Error },
}

impl PutError {
    pub(crate) fn new(failure: Failure, path: &str) -> Self {
        let path = path.to_owned();
        match failure {
            Failure::SessionEnded => Self::SessionEnded { path },
            Failure::SequenceUsedUp => Self::SequenceUsedUp { path },
            Failure::LineFull { depth } => Self::Full { path, depth },
            Failure::TooLarge { bytes, bytes_max } => Self::TooLarge {
                path,
                bytes,
                bytes_max,
            },
            Failure::Disconnected(source) => Self::Disconnected { path, source },
            Failure::Refused(source) => Self::Refused { path, source },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            // Items are persistent.
            Failure::Removed => Self::Refused {
                path,
                source: zk::Error::NO_NODE,
            },
        }
    }
}

/// Why no item was taken, or nothing was learned about the queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum TakeError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// Nothing came within the limit. The place in the line is given up.
    #[error("nothing to take at {path} within {limit:?}")]
    TimedOut { path: String, limit: Duration },
    /// The session is gone, and every claim made through it. Connect again first.
    #[error("session ended at {path}")]
    SessionEnded { path: String },
    /// As many consumers as are allowed wait already. Try later.
    #[error("{depth} wait at {path} already")]
    LineFull { path: String, depth: usize },
    /// The session has as many ephemeral nodes as the servers can remove at its end. Let go of some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and one at {path} does not fit any more"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The connection broke again and again. Try later.
    #[error("connection lost too often at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The server refused; the source says why. Trying again as it stands will not help.
    #[error("cannot take at {path}")]
    Refused { path: String, source: zk::Error },
}

impl TakeError {
    pub(crate) fn new(failure: Failure, path: &str) -> Self {
        let path = path.to_owned();
        match failure {
            Failure::SessionEnded => Self::SessionEnded { path },
            Failure::LineFull { depth } => Self::LineFull { path, depth },
            Failure::Disconnected(source) => Self::Disconnected { path, source },
            Failure::Refused(source) => Self::Refused { path, source },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            Failure::Removed | Failure::SequenceUsedUp | Failure::TooLarge { .. } => {
                Self::Refused {
                    path,
                    source: zk::Error::NO_NODE,
                }
            }
        }
    }
}

/// Why a claim did not end as it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum SettleError {
    /// The claim was over before: the item is, or was, for somebody else to take, and nothing was changed. Undo what
    /// can be undone.
    #[error("{item} at {path} was no longer claimed")]
    NotClaimed { path: String, item: String },
    /// The session is gone, and the claim with it. What was being sent may have taken effect before that; if not, the item
    /// is delivered again.
    #[error("session ended with {item} at {path} claimed")]
    SessionEnded { path: String, item: String },
    /// The result is more than the servers take in one request. Nothing was sent; the claim ends all the same, and the item is
    /// delivered again. Keep the bulk elsewhere, and say where.
    #[error("{bytes} bytes about {item} at {path} are more than {bytes_max}")]
    TooLarge {
        path: String,
        item: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The server refused; the claim ends all the same, and the item is delivered again.
    #[error("cannot settle {item} at {path}")]
    Refused {
        path: String,
        item: String,
        source: zk::Error,
    },
}
