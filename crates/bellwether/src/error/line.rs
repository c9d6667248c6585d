//! Errors of calls that join, change or read a line.

use std::time::Duration;

use bellwether_client as zk;

use super::{ConnectError, PathError};
use crate::node::who::Who;

/// Why [`Lock::acquire`](crate::Lock::acquire) and the similar verbs of other recipes returned no guard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum AcquireError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The wait limit passed, and the place in line is given up. Acquire again to join the end of the line.
    #[error("timed out after {limit:?} waiting for {path}")]
    TimedOut { path: String, limit: Duration },
    /// Another client deleted the node of this contender. Acquire again to join the end of the line.
    #[error("removed from the line at {path}")]
    Removed { path: String },
    /// A lock that was already held was lost while the call waited for the next lock. All are released; acquire again.
    #[error("{path} was lost while waiting for another lock")]
    Lost { path: String },
    /// The session ended, and with it the place in line and every guard of that session. Acquire again: the client opens a new session.
    #[error("session ended while waiting in line at {path}")]
    SessionEnded { path: String },
    /// The connection was lost repeatedly, or there were too many requests. The place in line is given up; try later.
    #[error("connection lost too often while waiting in line at {path}")]
    Disconnected { path: String, source: zk::Error },
    /// The directory has numbered its children almost to the limit of the protocol. Use a new path, or delete the directory while no client
    /// uses it: a new directory counts from zero.
    #[error("sequence numbers at {path} are used up")]
    SequenceUsedUp { path: String },
    /// The line has reached its limit. Try later, or raise the limit.
    #[error("the line at {path} is full: {depth} contenders")]
    LineFull { path: String, depth: usize },
    /// Contenders of another recipe are in the line, and the two recipes would not exclude each other. Use another path.
    #[error("{path} is in use as {recipe}")]
    OtherRecipe { path: String, recipe: &'static str },
    /// Contenders in the layout of another library are in the line, and the two would not exclude each other. Use another path, or
    /// [their layout](crate::Lock::layout).
    #[error("{path} is in use in the layout of {library}")]
    OtherLayout { path: String, library: &'static str },
    /// The data of the node would be too large, for example because of a long message. Shorten it.
    #[error("the data of the contender at {path} has {bytes} bytes, the limit is {bytes_max}")]
    TooLarge {
        path: String,
        bytes: usize,
        bytes_max: usize,
    },
    /// The data of the directory is not a number, so the path holds no semaphore. Use another path, or set a limit.
    #[error("the data of {path} is not a number of permits")]
    NoLimit { path: String },
    /// The re-entrant handle holds the read side, and would wait for itself. Release the read side first.
    #[error("the handle holds the read side of {path}")]
    HoldsReadSide { path: String },
    /// The locks of a [`MultiLock`](crate::MultiLock) cannot be acquired together. Correct the call.
    #[error("{path} cannot be acquired together with the other locks: {reason}")]
    NotTogether { path: String, reason: &'static str },
    /// The session has as many ephemeral nodes as the servers can remove at its end. Release some, or use another session.
    #[error(
        "the ephemeral nodes of the session take {bytes} bytes, and there is no room for one at {path}"
    )]
    TooManyEphemerals { path: String, bytes: usize },
    /// The server refused; the source says why. A retry of the same call will not help.
    #[error("cannot join the line at {path}")]
    Refused { path: String, source: zk::Error },
}

impl AcquireError {
    /// Whether the same call may succeed later: the session or the connection was lost, or time or room ran out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::TimedOut { .. }
            | Self::Removed { .. }
            | Self::Lost { .. }
            | Self::SessionEnded { .. }
            | Self::Disconnected { .. }
            | Self::LineFull { .. } => true,
            _ => false,
        }
    }
}

/// Why a [`Candidacy`](crate::election::Candidacy) or an [`Observe`](crate::election::Observe) is interrupted. Both continue when the next
/// item is polled, unless the client is closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CandidacyError {
    /// The session has ended, and no new session could be opened yet.
    #[error("no new session")]
    NoSession(#[from] ConnectError),
    /// There is a session, but the servers do not let this client be a candidate or an observer.
    #[error("cannot take part in the election")]
    NoPart(#[from] AcquireError),
}

impl CandidacyError {
    /// Whether the stream may continue without a change by the caller: the session or the connection was lost, or room ran out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession(source) => source.is_transient(),
            Self::NoPart(source) => source.is_transient(),
        }
    }

    /// Whether the stream ends after this: the client has no further session.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::NoSession(source) | Self::NoPart(AcquireError::NoSession { source, .. }) => {
                source.is_final()
            }
            Self::NoPart(_) => false,
        }
    }
}

/// Why [`Lock::clear_crash_mark`](crate::Lock::clear_crash_mark), or that of another recipe, did not clear a crash mark.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ClearError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The holder that the mark names still holds: there was no crash.
    #[error("{path} is held")]
    Held { path: String, who: Option<Box<Who>> },
    /// The server refused or did not answer. The mark may be cleared or not; look again.
    #[error("cannot clear {path}")]
    Failed { path: String, source: zk::Error },
}

impl ClearError {
    /// Whether the same call may succeed later: the session or the connection was lost, or the holder still held.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::Failed { source, .. } => may_pass(*source),
            Self::Held { .. } => true,
            _ => false,
        }
    }
}

/// Why the limit of a [`Semaphore`](crate::Semaphore) was not read or set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum LimitError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The data of the directory is not a number, so it is no semaphore. Use another path, or set a limit.
    #[error("the data of {path} is not a number of permits")]
    NoLimit { path: String },
    /// The server refused or did not answer. A new limit may have been set or not; look again.
    #[error("cannot read or set the limit at {path}")]
    Failed { path: String, source: zk::Error },
}

impl LimitError {
    /// Whether the same call may succeed later: the session or the connection was lost.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::Failed { source, .. } => may_pass(*source),
            _ => false,
        }
    }
}

/// Why a line could not be read from outside, or a contender in it could not be asked to release.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ContentionError {
    /// The path names no node. Correct it.
    #[error("bad path {path:?}")]
    BadPath { path: String, source: PathError },
    /// The session has ended, and no new session could be opened yet. The client keeps trying; call again later.
    #[error("no session for {path}")]
    NoSession { path: String, source: ConnectError },
    /// The server refused or did not answer. A change may have taken effect or not; look again.
    #[error("cannot read or change the line at {path}")]
    Failed { path: String, source: zk::Error },
}

impl ContentionError {
    /// Whether the same call may succeed later: the session or the connection was lost.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::Failed { source, .. } => may_pass(*source),
            _ => false,
        }
    }
}

/// Whether a request that failed like this may succeed later: a lost answer, or a session that has a successor.
fn may_pass(error: zk::Error) -> bool {
    error.is_transient() || error == zk::Error::SessionEnded(zk::SessionEnd::Expired)
}
