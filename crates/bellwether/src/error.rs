//! Error types, one for each family of calls. Variants differ by what the caller should do.

pub use crate::node::PathError;
pub use bellwether_client::ConnectError;

use std::time::Duration;

use bellwether_client as zk;

use crate::node::data::{DATA_BYTES_MAX, Who};

/// The reason why [`Lock::acquire`](crate::Lock::acquire) and the similar verbs of other recipes returned no guard.
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
    /// Returns whether the same call may succeed later: the session or the connection was lost, or time or room ran out.
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

/// The reason why a [`Candidacy`](crate::election::Candidacy) or an [`Observe`](crate::election::Observe) is interrupted. Both continue
/// when the next item is polled, unless the client is closed.
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
    /// Returns whether the stream may continue without a change by the caller: the session or the connection was lost, or room ran out.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession(source) => source.is_transient(),
            Self::NoPart(source) => source.is_transient(),
        }
    }

    /// Returns whether the stream ends after this: the client has no further session.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::NoSession(source) | Self::NoPart(AcquireError::NoSession { source, .. }) => {
                source.is_final()
            }
            Self::NoPart(_) => false,
        }
    }
}

/// The reason why [`Lock::clear_crash_mark`](crate::Lock::clear_crash_mark), or that of another recipe, did not clear a crash mark.
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
    /// Returns whether the same call may succeed later: the session or the connection was lost, or the holder still held.
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

/// The reason why the limit of a [`Semaphore`](crate::Semaphore) was not read or set.
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
    /// Returns whether the same call may succeed later: the session or the connection was lost.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::Failed { source, .. } => may_pass(*source),
            _ => false,
        }
    }
}

/// The reason why a line could not be read from outside, or a contender in it could not be asked to release.
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
    /// Returns whether the same call may succeed later: the session or the connection was lost.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::Failed { source, .. } => may_pass(*source),
            _ => false,
        }
    }
}

/// Returns whether a request that failed like this may succeed later: a lost answer, or a session that has a successor.
fn may_pass(error: zk::Error) -> bool {
    error.is_transient() || error == zk::Error::SessionEnded(zk::SessionEnd::Expired)
}

/// The error of [`Hold::run`](crate::Hold::run) when the hold ended before the work was done. The work is dropped; another holder may be
/// working by now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is no longer held")]
#[non_exhaustive]
pub struct Lost {
    /// The path of the recipe.
    pub path: String,
}

/// The error of [`LockGuard::release`](crate::LockGuard::release). In every case the hold has ended, or ends with the session at the
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
    /// Returns whether a repetition may succeed, from the acquisition on: the hold had ended before its work was done.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::SessionEnded { .. })
    }
}

/// The reason why a write under a hold was not made.
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
    /// Returns whether the same write may succeed under a new hold: this hold had ended, and nothing was written. `false` where something
    /// may have been written: read, then decide.
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

/// The reason why a call of [`Barrier`](crate::Barrier) or [`DoubleBarrier`](crate::DoubleBarrier) failed.
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
    /// Returns whether the same call may succeed later: the session or the connection was lost, or time or room ran out.
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

/// The reason why a call of [`Counter`](crate::Counter), [`Config`](crate::Config), [`ConfigFolder`](crate::ConfigFolder),
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
    /// Returns whether the same call may succeed later: there is no session at the moment, or the name is taken.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.is_transient(),
            Self::NameTaken { .. } => true,
            _ => false,
        }
    }
}
