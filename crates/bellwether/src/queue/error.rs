//! Errors of queues and tasks.

use std::error::Error;
use std::time::Duration;

use bellwether_client as zk;

use crate::error::ConnectError;
use crate::line::Failure;
use crate::node::PathError;
use crate::node::data::RecordedOrder;
use crate::session::recipe_options::from_unreached;

from_unreached!(PutError, TakeError);

/// The reason why an item was not put, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum PutError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The queue has reached its limit. Try later, or raise the limit.
    #[error("{path} is full: {depth} items")]
    Full { path: String, depth: usize },
    /// The item is larger than the limit, or the batch is larger than one request. Put less, or store the data elsewhere and put a
    /// reference.
    #[error("{bytes} bytes for {path}, the limit is {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The queue has another order: its items were put by a handle of another type. Nothing was put. Use that type, or another path.
    #[error("{path} is a queue in the order of {order}")]
    OtherOrder { path: String, order: RecordedOrder },
    /// The value cannot be encoded. Nothing was put.
    #[error("an item for {path} cannot be encoded")]
    NotWritable {
        path: String,
        source: Box<dyn Error + Send + Sync>,
    },
    /// The directory has numbered its children almost to the limit of the protocol. Use a new path, or delete the
    /// directory of items when it is empty: a new one counts from zero.
    #[error("sequence numbers at {path} are used up")]
    SequenceUsedUp { path: String },
    /// The session has as many ephemeral nodes as the servers can remove at its end, and there is no room for a receipt. Put fewer at a
    /// time, release some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and there is no room for a receipt at {path}"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The session had ended: nothing was put. Put again: the client opens a new session.
    #[error("session ended before the put at {path}")]
    SessionEnded { path: String },
    /// The session ended before the answer, and the receipt with it: the item was put once, or not at all. Put it again only if consumers
    /// can recognise a duplicate.
    #[error("no answer; the item may be in {path} or not")]
    OutcomeUnknown { path: String, source: zk::Error },
    /// The connection was lost repeatedly, or there were too many requests, before anything was put. Try later.
    #[error("connection lost too often before the put at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The server refused; the source says why. A retry of the same call will not help.
    #[error("cannot put at {path}")]
    Refused { path: String, source: zk::Error },
}

impl PutError {
    /// Returns whether the same call may succeed later: the session or the connection was lost, or time or room ran out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::Full { .. } | Self::SessionEnded { .. } | Self::Disconnected { .. } => true,
            _ => false,
        }
    }

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
            Failure::OtherOrder(order) => Self::OtherOrder { path, order },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            // Items are persistent.
            Failure::Removed => Self::Refused {
                path,
                source: zk::Error::NO_NODE,
            },
        }
    }
}

/// The reason why no item was taken, or the queue could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum TakeError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// No item came within the limit. The place in line is given up.
    #[error("timed out after {limit:?} waiting for an item at {path}")]
    TimedOut { path: String, limit: Duration },
    /// The queue has items of another order: they were put by a handle of another type. Use that type.
    #[error("{path} is a queue in the order of {order}")]
    OtherOrder { path: String, order: RecordedOrder },
    /// The session ended, and every claim of that session with it. Take again: the client opens a new session.
    #[error("session ended at {path}")]
    SessionEnded { path: String },
    /// The line of waiting consumers has reached its limit. Try later.
    #[error("{depth} consumers wait at {path} already")]
    LineFull { path: String, depth: usize },
    /// The data of a waiting consumer's node would be too large, for example because of a long message. Shorten it.
    #[error("the data of the consumer at {path} has {bytes} bytes, the limit is {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The directory of waiting consumers has numbered its children almost to the limit of the protocol. Wait until no consumer waits, and
    /// delete the directory `line`: a new one counts from zero. Servers with containers delete it by themselves.
    #[error("sequence numbers of waiting consumers at {path} are used up")]
    SequenceUsedUp { path: String },
    /// The session has as many ephemeral nodes as the servers can remove at its end. Release some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and there is no room for one at {path}"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The connection was lost repeatedly, or there were too many requests. Try later.
    #[error("connection lost too often at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The server refused; the source says why. A retry of the same call will not help.
    #[error("cannot take at {path}")]
    Refused { path: String, source: zk::Error },
}

impl TakeError {
    /// Returns whether the same call may succeed later: the session or the connection was lost, or time or room ran out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::TimedOut { .. }
            | Self::SessionEnded { .. }
            | Self::LineFull { .. }
            | Self::Disconnected { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn new(failure: Failure, path: &str) -> Self {
        let path = path.to_owned();
        match failure {
            Failure::SessionEnded => Self::SessionEnded { path },
            Failure::LineFull { depth } => Self::LineFull { path, depth },
            Failure::SequenceUsedUp => Self::SequenceUsedUp { path },
            Failure::TooLarge { bytes, bytes_max } => Self::TooLarge {
                path,
                bytes,
                bytes_max,
            },
            Failure::Disconnected(source) => Self::Disconnected { path, source },
            Failure::Refused(source) => Self::Refused { path, source },
            Failure::OtherOrder(order) => Self::OtherOrder { path, order },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            Failure::Removed => Self::Refused {
                path,
                source: zk::Error::NO_NODE,
            },
        }
    }
}

/// The reason why a claim was not acknowledged or given back as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum SettleError {
    /// The claim had ended before: another consumer may have the item, and nothing was changed. Undo the work if possible.
    #[error("{item} at {path} was no longer claimed")]
    NotClaimed { path: String, item: String },
    /// The session has ended, and the claim with it. The request may have taken effect before that; if not, the item is delivered again.
    #[error("session ended with {item} at {path} claimed")]
    SessionEnded { path: String, item: String },
    /// The answer was lost, and another client has deleted the receipt that would tell whether the claim was settled. If it was not, the item
    /// is delivered again.
    #[error("no answer; {item} at {path} may be settled or not")]
    OutcomeUnknown {
        path: String,
        item: String,
        source: zk::Error,
    },
    /// The result is larger than one request. Nothing was sent; the claim ends all the same, and the item is delivered again. Store the
    /// data elsewhere, and record a reference.
    #[error("{bytes} bytes for {item} at {path}, the limit is {bytes_max}")]
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

impl SettleError {
    /// Returns whether a repetition may succeed, from the take on: the claim had ended before, and the item is delivered again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotClaimed { .. } | Self::SessionEnded { .. })
    }
}
