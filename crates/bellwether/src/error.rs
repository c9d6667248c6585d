//! The error of every verb: what failed, and what the caller does about it.

pub use crate::node::PathError;
pub use bellwether_client::ConnectError;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether_client as zk;

use crate::node::data::{DATA_BYTES_MAX, RecordedOrder, Who};

/// An error of the caller's code, such as a handler or an encoder.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// The reason why a verb failed. The documentation of each verb names the kinds that it returns.
///
/// ```
/// use bellwether::{Error, ErrorKind, Lock};
///
/// # async fn run(lock: Lock) -> Result<(), Error> {
/// match lock.acquire().await {
///     Ok(guard) => guard.release().await,
///     Err(Error { kind: ErrorKind::Full { depth }, path, .. }) => {
///         println!("{depth} contenders wait for {path}");
///         Ok(())
///     }
///     Err(error) if error.is_transient() => Ok(()), // try again later
///     Err(error) => Err(error),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The case: it says what the caller should do, and carries the data that belongs to it.
    pub kind: ErrorKind,
    /// The path of the recipe, or of the node in it that the error is about.
    pub path: String,
    /// The name of the call, as in its span.
    call: &'static str,
}

/// The kind of an [`Error`], in four groups by what the caller does.
///
/// **Correct the call**, or what it is about. The same call fails again: [`BadPath`](Self::BadPath), [`BadSize`](Self::BadSize),
/// [`TooLarge`](Self::TooLarge), [`OutOfRange`](Self::OutOfRange), [`NotEncodable`](Self::NotEncodable),
/// [`Unreadable`](Self::Unreadable), [`InUse`](Self::InUse), [`Unsupported`](Self::Unsupported), [`AlreadyBegun`](Self::AlreadyBegun),
/// [`NotFound`](Self::NotFound), [`NotASite`](Self::NotASite), [`SequenceUsedUp`](Self::SequenceUsedUp),
/// [`TooManyEphemerals`](Self::TooManyEphemerals).
///
/// **Try again**, at once or later. [`is_transient`](Self::is_transient) returns `true`, except for a client that is closed or refused:
/// [`NoSession`](Self::NoSession), [`SessionEnded`](Self::SessionEnded), [`Disconnected`](Self::Disconnected),
/// [`TimedOut`](Self::TimedOut), [`Full`](Self::Full), [`Removed`](Self::Removed), [`Lost`](Self::Lost), [`Held`](Self::Held),
/// [`NameTaken`](Self::NameTaken), [`Undecided`](Self::Undecided), [`NotDone`](Self::NotDone).
///
/// **Stop the work**: the hold or claim is over, and another client may have it. [`NotHeld`](Self::NotHeld),
/// [`LostWithSession`](Self::LostWithSession).
///
/// **Read, then decide**: only the caller can tell. [`OutcomeUnknown`](Self::OutcomeUnknown), [`Refused`](Self::Refused),
/// [`Handler`](Self::Handler).
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ErrorKind {
    /// The path, or a name in it, names no node. Correct it.
    BadPath(PathError),
    /// The number of members of a barrier, or of sites of a transaction, is out of range. Correct it.
    BadSize { size: usize, size_max: usize },
    /// The data does not fit into a node or a request, for example because of a long message. Nothing was written. Write less, or store
    /// the data elsewhere and write a reference.
    TooLarge { bytes: usize, bytes_max: usize },
    /// The sum would be out of range. The counter is unchanged.
    OutOfRange,
    /// The value cannot be encoded. Nothing was written.
    NotEncodable(Cause),
    /// The data cannot be decoded: this recipe has not written it. Inspect the node with other tools.
    Unreadable(Cause),
    /// The path is in use in another way, and the two would not exclude or understand each other. Use another path, or agree.
    InUse(OtherUse),
    /// The recipe, or this handle, cannot do that; the reason says why. Correct the call.
    Unsupported { reason: &'static str },
    /// There is a transaction with this id already. Take it over if it is yours, or use another id.
    AlreadyBegun,
    /// There is no such transaction: none was begun, or every site had done its part and it was cleaned up.
    NotFound,
    /// The transaction was begun without this site. Correct it.
    NotASite { site: String },
    /// The directory has numbered its children almost to the limit of the protocol. Use a new path, or delete the directory while no client
    /// uses it: a new directory counts from zero.
    SequenceUsedUp,
    /// The session has as many ephemeral nodes as the servers can remove at its end. Nothing was created. Release some, or use another
    /// session.
    TooManyEphemerals { bytes: usize },
    /// There is no session: none could be opened yet, and the client keeps trying; or the client is closed, which also ends calls that
    /// wait. Nothing has taken effect. Call again later, unless the client is closed.
    NoSession(ConnectError),
    /// The session ended, and with it the place in line and every guard of that session. Call again: the client opens a new session.
    SessionEnded,
    /// The connection was lost repeatedly, or there were too many requests. The call has given up, and repeating it is harmless. Try later.
    Disconnected(zk::Error),
    /// The limit passed. A place in line is given up; a transaction continues.
    TimedOut { limit: Duration },
    /// The line or the queue has reached its limit. Try later, or raise the limit.
    Full { depth: usize },
    /// Another client deleted the node of this contender or member. Acquire again to join the end of the line.
    Removed,
    /// A lock that was already held was lost while the call waited for the next lock. All are released; acquire again.
    Lost,
    /// The holder that the crash mark names still holds: there was no crash.
    Held { who: Option<Box<Who>> },
    /// Another member has this name. Use another name, or wait until it is free.
    NameTaken,
    /// There is no decision yet, so no site can have applied it. Wait for the decision first.
    Undecided,
    /// Sites that have not applied the decision yet, so the transaction cannot be removed. Wait for them, or use force.
    NotDone { sites: Vec<String> },
    /// The hold or claim had ended before: nothing was changed, and there may have been another holder since. Stop, and undo the work if
    /// possible.
    NotHeld,
    /// The session has ended, and the hold or claim with it. The change may have taken effect before that. There may have been another
    /// holder since.
    LostWithSession,
    /// No answer came: the change took effect once, or not at all. Read, then decide.
    OutcomeUnknown(zk::Error),
    /// The server refused; the source says why, and `index` which of several writes, counted from 0. None of them was made. A hold or claim
    /// that was to be released ends with the session.
    Refused {
        index: Option<usize>,
        source: zk::Error,
    },
    /// A handler of the participant failed. No vote was cast, or the decision is not marked as applied. Call `participate` again: it
    /// continues where it was.
    Handler(Cause),
}

/// The other use of a path, in [`ErrorKind::InUse`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherUse {
    /// The contenders in the line are of this recipe.
    Recipe(&'static str),
    /// The contenders in the line use the [layout](crate::Lock::layout) of this library.
    Layout(&'static str),
    /// The queue has this order: its items were put by a handle of another type. Nothing was put or taken. Use that type.
    Order(RecordedOrder),
    /// The members of the barrier expect another number of members.
    Members {
        /// The number that they expect.
        theirs: usize,
        /// The number of this handle.
        ours: usize,
    },
    /// The path has data of something else than a double barrier.
    NotABarrier,
    /// The data of the path is not a number of permits. Use another path, or set a limit.
    NoLimit,
}

impl Error {
    /// Returns whether the same call may succeed later, without a change by the caller. See [`ErrorKind::is_transient`].
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// The name of the call that failed, as in its [span](https://docs.rs/tracing): `lock.acquire`, for example.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The error of the servers or the connection, if there is one.
    #[must_use]
    pub fn zk(&self) -> Option<zk::Error> {
        match &self.kind {
            ErrorKind::Disconnected(source)
            | ErrorKind::OutcomeUnknown(source)
            | ErrorKind::Refused { source, .. } => Some(*source),
            _ => None,
        }
    }

    /// Names the thing that is awaited at the path.
    fn awaited(&self) -> &'static str {
        match self.call.split_once('.') {
            Some(("queue" | "tasks", _)) => "an item at ",
            Some(("transaction", _)) => "the decision on ",
            _ => "",
        }
    }

    /// Names the place that is full, and its members.
    fn crowd(&self) -> (&'static str, &'static str) {
        match self.call.split_once('.') {
            Some(("queue" | "tasks", verb)) if verb.contains("take") => {
                ("the line at ", "consumers")
            }
            Some(("queue" | "tasks", _)) => ("", "items"),
            Some(("double_barrier", _)) => ("the line at ", "members"),
            _ => ("the line at ", "contenders"),
        }
    }
}

impl ErrorKind {
    /// Returns whether the same call may succeed later, without a change by the caller: the session or the connection was lost, or time
    /// or room ran out. `false` where the outcome is unknown, and where a hold or claim was over.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSession(source) => source.is_transient(),
            Self::SessionEnded
            | Self::Disconnected(_)
            | Self::TimedOut { .. }
            | Self::Full { .. }
            | Self::Removed
            | Self::Lost
            | Self::Held { .. }
            | Self::NameTaken
            | Self::Undecided
            | Self::NotDone { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the client will have no further session.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::NoSession(source) if source.is_final())
    }

    pub(crate) const fn refused(source: zk::Error) -> Self {
        Self::Refused {
            index: None,
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, call } = self;
        match kind {
            ErrorKind::BadPath(_) => write!(f, "bad path {path:?}"),
            ErrorKind::BadSize { size, size_max } => {
                let what = match call.starts_with("transaction.") {
                    true => "sites",
                    false => "members",
                };
                write!(f, "{path} can have 1 to {size_max} {what}, not {size}")
            }
            ErrorKind::TooLarge { bytes, bytes_max } => {
                write!(f, "{bytes} bytes for {path}, the limit is {bytes_max}")
            }
            ErrorKind::OutOfRange => write!(f, "the sum at {path} is out of range"),
            ErrorKind::NotEncodable(_) => write!(f, "a value for {path} cannot be encoded"),
            ErrorKind::Unreadable(_) => write!(f, "the data of {path} cannot be decoded"),
            ErrorKind::InUse(other) => match other {
                OtherUse::Recipe(recipe) => write!(f, "{path} is in use as {recipe}"),
                OtherUse::Layout(library) => {
                    write!(f, "{path} is in use in the layout of {library}")
                }
                OtherUse::Order(order) => write!(f, "{path} is a queue in the order of {order}"),
                OtherUse::Members { theirs, ours } => {
                    write!(f, "{path} is a barrier of {theirs} members, not of {ours}")
                }
                OtherUse::NotABarrier => write!(f, "{path} is no double barrier"),
                OtherUse::NoLimit => write!(f, "the data of {path} is not a number of permits"),
            },
            ErrorKind::Unsupported { reason } => {
                write!(f, "{call} cannot work at {path}: {reason}")
            }
            ErrorKind::AlreadyBegun => write!(f, "{path} has begun already"),
            ErrorKind::NotFound => write!(f, "there is no transaction {path}"),
            ErrorKind::NotASite { site } => write!(f, "{site} has no part in {path}"),
            ErrorKind::SequenceUsedUp => write!(f, "sequence numbers at {path} are used up"),
            ErrorKind::TooManyEphemerals { bytes } => write!(
                f,
                "the ephemeral nodes of the session take {bytes} bytes, and there is no room for one at {path}"
            ),
            ErrorKind::NoSession(_) => write!(f, "no session for {path}"),
            ErrorKind::SessionEnded => write!(f, "session ended during {call} at {path}"),
            ErrorKind::Disconnected(_) => {
                write!(f, "connection lost too often during {call} at {path}")
            }
            ErrorKind::TimedOut { limit } => {
                let awaited = self.awaited();
                write!(f, "timed out after {limit:?} waiting for {awaited}{path}")
            }
            ErrorKind::Full { depth } => {
                let (line, members) = self.crowd();
                write!(f, "{line}{path} is full: {depth} {members}")
            }
            ErrorKind::Removed => write!(f, "another client removed the caller's node at {path}"),
            ErrorKind::Lost => write!(f, "{path} was lost while waiting for another lock"),
            ErrorKind::Held { .. } => write!(f, "{path} is held"),
            ErrorKind::NameTaken => write!(f, "the name {path} is taken"),
            ErrorKind::Undecided => write!(f, "{path} is not decided"),
            ErrorKind::NotDone { sites } => write!(f, "{path} is not done at {}", sites.join(", ")),
            ErrorKind::NotHeld => write!(f, "{path} was no longer held at {call}"),
            ErrorKind::LostWithSession => {
                write!(f, "session ended with {path} held, during {call}")
            }
            ErrorKind::OutcomeUnknown(_) => {
                write!(
                    f,
                    "no answer; {call} at {path} may have taken effect or not"
                )
            }
            ErrorKind::Refused { index: None, .. } => write!(f, "{call} was refused at {path}"),
            ErrorKind::Refused {
                index: Some(index), ..
            } => write!(f, "write {index} of {call} was refused at {path}"),
            ErrorKind::Handler(_) => write!(f, "a handler failed at {path}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::BadPath(source) => Some(source),
            ErrorKind::NoSession(source) => Some(source),
            ErrorKind::Disconnected(source)
            | ErrorKind::OutcomeUnknown(source)
            | ErrorKind::Refused { source, .. } => Some(source),
            ErrorKind::NotEncodable(source)
            | ErrorKind::Unreadable(source)
            | ErrorKind::Handler(source) => Some(&**source),
            _ => None,
        }
    }
}

/// The reason why a step of a call failed. The call makes an [`Error`] of it, and adds its path and name.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    /// Set if it is not the path of the call.
    pub(crate) path: Option<String>,
}

impl Failure {
    /// A failure at another path than that of the call.
    pub(crate) fn elsewhere(path: impl Into<String>, kind: ErrorKind) -> Self {
        Self {
            kind,
            path: Some(path.into()),
        }
    }

    /// The error of a call at a path.
    pub(crate) fn of(self, call: &'static str, path: &str) -> Error {
        Error {
            kind: self.kind,
            path: self.path.unwrap_or_else(|| path.to_owned()),
            call,
        }
    }

    /// Refuses data that is too large for a node: the servers would close the connection without a reply, each time.
    pub(crate) fn check_size(bytes: usize) -> Result<(), Self> {
        match bytes > DATA_BYTES_MAX {
            true => Err(ErrorKind::TooLarge {
                bytes,
                bytes_max: DATA_BYTES_MAX,
            }
            .into()),
            false => Ok(()),
        }
    }
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, path: None }
    }
}

/// A call of another verb: its error keeps its path.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::elsewhere(error.path, error.kind)
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        ErrorKind::BadPath(error).into()
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        ErrorKind::NoSession(error).into()
    }
}

/// The error of a request that is a read, or is harmless twice.
impl From<zk::Error> for Failure {
    fn from(error: zk::Error) -> Self {
        let kind = match error {
            error if error.is_transient() => ErrorKind::Disconnected(error),
            zk::Error::SessionEnded(_) => ErrorKind::SessionEnded,
            error => ErrorKind::refused(error),
        };
        kind.into()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(call: &'static str, kind: ErrorKind) -> String {
        Failure::from(kind).of(call, "/path").to_string()
    }

    #[test]
    fn messages_name_the_path_and_what_was_done_there() {
        use ErrorKind as E;
        let lost = zk::Error::Unknown;
        let limit = Duration::from_secs(1);
        let refused = |index| E::Refused {
            index,
            source: zk::Error::NO_AUTH,
        };
        let size = E::BadSize {
            size: 3,
            size_max: 2,
        };
        let told = [
            (
                "lock.acquire",
                E::TimedOut { limit },
                "timed out after 1s waiting for /path",
            ),
            (
                "queue.take",
                E::TimedOut { limit },
                "timed out after 1s waiting for an item at /path",
            ),
            (
                "transaction.decision",
                E::TimedOut { limit },
                "timed out after 1s waiting for the decision on /path",
            ),
            (
                "lock.acquire",
                E::Full { depth: 3 },
                "the line at /path is full: 3 contenders",
            ),
            (
                "queue.take",
                E::Full { depth: 3 },
                "the line at /path is full: 3 consumers",
            ),
            ("queue.put", E::Full { depth: 3 }, "/path is full: 3 items"),
            (
                "double_barrier.enter",
                E::Full { depth: 3 },
                "the line at /path is full: 3 members",
            ),
            (
                "double_barrier.enter",
                size.clone(),
                "/path can have 1 to 2 members, not 3",
            ),
            (
                "transaction.begin",
                size,
                "/path can have 1 to 2 sites, not 3",
            ),
            (
                "lock.acquire",
                E::SessionEnded,
                "session ended during lock.acquire at /path",
            ),
            (
                "queue.put",
                E::Disconnected(lost),
                "connection lost too often during queue.put at /path",
            ),
            (
                "hold.release",
                E::NotHeld,
                "/path was no longer held at hold.release",
            ),
            (
                "hold.release",
                E::LostWithSession,
                "session ended with /path held, during hold.release",
            ),
            (
                "counter.add",
                E::OutcomeUnknown(lost),
                "no answer; counter.add at /path may have taken effect or not",
            ),
            (
                "config.set",
                refused(None),
                "config.set was refused at /path",
            ),
            (
                "hold.write",
                refused(Some(2)),
                "write 2 of hold.write was refused at /path",
            ),
        ];
        for (call, kind, expected) in told {
            assert_eq!(said(call, kind), expected);
        }
    }

    #[test]
    fn failure_of_an_inner_call_keeps_its_path() {
        let inner = Failure::from(ErrorKind::NotFound).of("transaction.status", "/all/one");
        let error = Failure::from(inner).of("transaction.clean_up", "/all");
        assert_eq!(
            (error.path.as_str(), error.call()),
            ("/all/one", "transaction.clean_up")
        );
    }
}
