//! What calls report, by what a caller would do about it.

use std::time::Duration;

use zookeeper_client as zk;

use crate::contender::{DATA_BYTES_MAX, Failure};
use crate::path::PathError;
use crate::who::Who;

/// Why [`connect`](crate::connect) opened no session.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// A lock that had been taken before was lost while this one waited for the next. All are given back; acquire again.
    #[error("{path} was lost while others were waited for")]
    Lost { path: String },
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
    /// The line is as long as is allowed. Try later, or allow more.
    #[error("{depth} are in the line at {path} already")]
    LineFull { path: String, depth: usize },
    /// Contenders of another recipe stand in the line, and the two would not exclude each other. Use another path.
    #[error("{path} is in use as {recipe}")]
    OtherRecipe { path: String, recipe: &'static str },
    /// The data of the node would be too large: a long message, for example. Say less.
    #[error("{bytes} bytes about the contender at {path} are more than {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The data of the directory is not a number, so it is no semaphore. Use another path, or set a limit.
    #[error("no limit is set at {path}")]
    NoLimit { path: String },
    /// The library whose layout was asked for has no such thing: several permits at once. Ask for one after the other.
    #[error("one permit at a time at {path}")]
    NotInLayout { path: String },
    /// The re-entrant handle reads, and to write it would wait for itself. Give the read side back first.
    #[error("the handle holds the read side of {path}")]
    HoldsReadSide { path: String },
    /// The session has as many ephemeral nodes as the servers can remove at its end. Let go of some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and one at {path} does not fit any more"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The server refused; the source says why. Trying again as it stands will not help.
    #[error("cannot queue at {path}")]
    Refused { path: String, source: zk::Error },
}

impl AcquireError {
    pub(crate) fn new(failure: Failure, path: &str) -> Self {
        let path = path.to_owned();
        match failure {
            Failure::Removed => Self::Removed { path },
            Failure::SessionEnded => Self::SessionEnded { path },
            Failure::SequenceUsedUp => Self::SequenceUsedUp { path },
            Failure::LineFull { depth } => Self::LineFull { path, depth },
            Failure::TooLarge { bytes, bytes_max } => Self::TooLarge {
                path,
                bytes,
                bytes_max,
            },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            Failure::Disconnected(source) => Self::Disconnected { path, source },
            Failure::Refused(source) => Self::Refused { path, source },
        }
    }
}

/// Why a [`Candidacy`](crate::Candidacy) or an [`Observe`](crate::Observe) is interrupted. Both go on when asked for the next item.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandError {
    /// The session has ended, and there is no new one yet.
    #[error("no new session")]
    NoSession(#[from] ConnectError),
    /// The session is there, and the servers do not let this one run or look.
    #[error("no part in the election")]
    NoPart(#[from] AcquireError),
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

/// Why a write under a hold was not made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum WriteError {
    /// The hold is over: nothing was written. Stop the work.
    #[error("the hold is over")]
    NotHeld,
    /// The session is gone, and the hold with it. What was being sent may have been written before that.
    #[error("session ended")]
    SessionEnded,
    /// The connection broke before the answer: it may have been written or not. Read, then decide.
    #[error("no answer; the write may have taken effect or not")]
    OutcomeUnknown { source: zk::Error },
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The hold has no crash mark to note anything in. Ask for one when acquiring.
    #[error("the hold has no crash mark")]
    NoMark,
    /// The node of this hold has no name of its own, so the servers cannot tell it from the next holder's. Use a fair lock.
    #[error("a simple lock cannot guard writes")]
    NotFenced,
    /// What was to be written is too large, for a word about a hold or for one request; nothing was. Say less, or in parts.
    #[error("{bytes} bytes are more than {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// The server refused the write with this index, counted from 0, and made none of them.
    #[error("write {index} was refused")]
    Refused { index: usize, source: zk::Error },
}

impl WriteError {
    /// Refuses what a holder says if it is too large: the servers would close the connection without a reply, each time.
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

/// Why [`Lock::clear`](crate::Lock::clear) did not forget a crash.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ClearError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The holder that the mark names still holds. There is nothing to forget.
    #[error("{path} is held")]
    Held { path: String, who: Option<Box<Who>> },
    /// The server refused or did not answer. The mark may be there or not; look again.
    #[error("cannot clear {path}")]
    Failed { path: String, source: zk::Error },
}

/// Why the limit of a [`Semaphore`](crate::Semaphore) was not read or set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum LimitError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The data of the directory is not a number, so it is no semaphore. Use another path, or set a limit.
    #[error("no limit is set at {path}")]
    NoLimit { path: String },
    /// The library whose layout was asked for has no limit on the server. Give another limit to each user.
    #[error("the limit of {path} is not on the server")]
    NotInLayout { path: String },
    /// The server refused or did not answer. A new limit may have been set or not; look again.
    #[error("cannot reach the limit at {path}")]
    Failed { path: String, source: zk::Error },
}

/// Why a look at a line from outside, or a request to one in it, came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ContentionError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// There are too many directories below the path. Search below a longer one.
    #[error("more than {directories_max} directories below {path}")]
    TooLarge {
        path: String,
        directories_max: usize,
    },
    /// The server refused or did not answer. What was to be changed may have been or not; look again.
    #[error("cannot reach the line at {path}")]
    Failed { path: String, source: zk::Error },
}

/// Why a call of [`Barrier`](crate::Barrier) or [`DoubleBarrier`](crate::DoubleBarrier) did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum BarrierError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// No barrier can have so many members. Correct it.
    #[error("{size} members, where 1 to {size_max} can meet")]
    BadSize { size: usize, size_max: usize },
    /// The others count on another number of members. Agree on one.
    #[error("{path} is a barrier of {theirs} members, and not of {ours}")]
    SizeDiffers {
        path: String,
        theirs: usize,
        ours: usize,
    },
    /// The path is in use for something else. Take another.
    #[error("{path} is no double barrier")]
    NotABarrier { path: String },
    /// The wait limit passed; whoever was entering is no longer a member, whoever was leaving has left.
    #[error("no word at {path} within {limit:?}")]
    TimedOut { path: String, limit: Duration },
    /// Another hand deleted the node of this member: the others go on without it.
    #[error("removed from {path}")]
    Removed { path: String },
    /// The session is gone, and this member with it. Connect again first.
    #[error("session ended at {path}")]
    SessionEnded { path: String },
    /// The connection broke again and again. This member has given up; try later.
    #[error("connection lost too often at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The session ended before the answer: the barrier may have been changed or not. Look, then decide.
    #[error("no answer; {path} may have been changed or not")]
    OutcomeUnknown { path: String, source: zk::Error },
    /// The data of the node would be too large: a long message, for example. Say less.
    #[error("{bytes} bytes about the member at {path} are more than {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// So many want to enter that no more are let in line. Try later.
    #[error("{depth} want to enter {path} already")]
    Crowded { path: String, depth: usize },
    /// The session has as many ephemeral nodes as the servers can remove at its end. Let go of some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and one at {path} does not fit any more"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The server refused; the source says why. Trying again as it stands will not help.
    #[error("refused at {path}")]
    Refused { path: String, source: zk::Error },
}

impl BarrierError {
    pub(crate) fn new(failure: Failure, path: &str) -> Self {
        let path = path.to_owned();
        match failure {
            Failure::Removed => Self::Removed { path },
            Failure::SessionEnded => Self::SessionEnded { path },
            Failure::LineFull { depth } => Self::Crowded { path, depth },
            Failure::Disconnected(source) => Self::Disconnected { path, source },
            Failure::Refused(source) => Self::Refused { path, source },
            Failure::TooLarge { bytes, bytes_max } => Self::TooLarge {
                path,
                bytes,
                bytes_max,
            },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            // The line begins anew with each round, so this takes two thousand million entries into one.
            Failure::SequenceUsedUp => Self::Refused {
                path,
                source: zk::Error::BadArguments(&"the sequence is used up"),
            },
        }
    }
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
