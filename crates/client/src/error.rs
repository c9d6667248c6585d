//! Why a request or a connection attempt failed.

use std::fmt;
use std::time::Duration;

pub use bellwether_wire::code::ErrorCode;
pub use bellwether_wire::path::PathError;

/// Why a request failed.
///
/// The kinds differ in what may have happened on the server, so that a caller knows whether the request may be sent again.
/// [`Error::of_code`] is the one place that decides which codes of a server are answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused. The request had no effect; sending it again unchanged will not help.
    #[error("{0}")]
    Refused(ErrorCode),
    /// The request never left this process. It had no effect, and it is safe to send it again.
    #[error("the request was not sent")]
    NotSent,
    /// The request was sent and no answer came: it may have taken effect or not.
    #[error("the connection was lost before the reply")]
    Unknown,
    /// The session has ended. Its ephemeral nodes are deleted, or will be. A request that was in flight may have taken
    /// effect before.
    #[error("{0}")]
    SessionEnded(SessionEnd),
    /// The request cannot be sent: correct it.
    #[error("{0}")]
    Invalid(Invalid),
}

/// Shorthands for the refusals that callers match on.
#[expect(missing_docs, reason = "named as the codes")]
impl Error {
    pub const NO_NODE: Self = Self::Refused(ErrorCode::NoNode);
    pub const NO_AUTH: Self = Self::Refused(ErrorCode::NoAuth);
    pub const BAD_VERSION: Self = Self::Refused(ErrorCode::BadVersion);
    pub const NODE_EXISTS: Self = Self::Refused(ErrorCode::NodeExists);
    pub const NOT_EMPTY: Self = Self::Refused(ErrorCode::NotEmpty);
    pub const NO_CHILDREN_FOR_EPHEMERALS: Self = Self::Refused(ErrorCode::NoChildrenForEphemerals);
    pub const UNIMPLEMENTED: Self = Self::Refused(ErrorCode::Unimplemented);
    pub const NO_WATCHER: Self = Self::Refused(ErrorCode::NoWatcher);
}

impl Error {
    /// The meaning of the error number of a reply. Only codes that the protocol defines as answers are refusals; every
    /// other number says nothing about the request.
    pub fn of_code(number: i32) -> Self {
        match ErrorCode::from_number(number) {
            Some(
                code @ (ErrorCode::RuntimeInconsistency
                | ErrorCode::MarshallingError
                | ErrorCode::Unimplemented
                | ErrorCode::BadArguments
                | ErrorCode::NewConfigNoQuorum
                | ErrorCode::ReconfigInProgress
                | ErrorCode::NoNode
                | ErrorCode::NoAuth
                | ErrorCode::BadVersion
                | ErrorCode::NoChildrenForEphemerals
                | ErrorCode::NodeExists
                | ErrorCode::NotEmpty
                | ErrorCode::InvalidAcl
                | ErrorCode::NotReadOnly
                | ErrorCode::EphemeralOnLocalSession
                | ErrorCode::NoWatcher
                | ErrorCode::ReconfigDisabled
                | ErrorCode::QuotaExceeded
                | ErrorCode::ThrottledOp),
            ) => Self::Refused(code),
            Some(ErrorCode::SessionExpired | ErrorCode::UnknownSession) => {
                Self::SessionEnded(SessionEnd::Expired)
            }
            Some(ErrorCode::AuthFailed | ErrorCode::AuthRequired) => {
                Self::SessionEnded(SessionEnd::AuthFailed)
            }
            Some(
                ErrorCode::SystemError
                | ErrorCode::DataInconsistency
                | ErrorCode::ConnectionLoss
                | ErrorCode::OperationTimeout
                | ErrorCode::SessionMoved
                | ErrorCode::RequestTimeout,
            )
            | None => Self::Unknown,
        }
    }

    /// Whether the same request may succeed later: it was not sent, its outcome is unknown, or there were [too many](Self::is_overload).
    ///
    /// It may be sent again at once: while there is no connection it waits in the client, and an overload takes a while to be reported. Every
    /// error is either transient, or a [refusal](Self::is_refusal), or the [end of the session](Self::is_session_end).
    pub fn is_transient(self) -> bool {
        matches!(self, Self::NotSent | Self::Unknown) || self.is_overload()
    }

    /// Whether the request was refused: it had no effect, and sending it again unchanged will not help.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Refused(_) | Self::Invalid(_)) && !self.is_transient()
    }

    /// Whether the request had no effect because the server, or this client, has too many others.
    pub fn is_overload(self) -> bool {
        matches!(
            self,
            Self::Refused(ErrorCode::ThrottledOp) | Self::Invalid(Invalid::TooManyRequests)
        )
    }

    /// Whether the request may have taken effect without an answer: it was sent, or its session ended meanwhile.
    pub fn is_in_doubt(self) -> bool {
        matches!(self, Self::Unknown | Self::SessionEnded(_))
    }

    /// Whether the session has ended.
    pub fn is_session_end(self) -> bool {
        matches!(self, Self::SessionEnded(_))
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The servers expired it, or no server was reached for longer than they keep it.
    #[error("the session expired")]
    Expired,
    /// This process closed it.
    #[error("the session is closed")]
    Closed,
    /// The servers refuse the credentials.
    #[error("the servers refused the credentials")]
    AuthFailed,
    /// The runtime that carried the session was shut down.
    #[error("the runtime of the session is gone")]
    RuntimeGone,
    /// This process is a forked child of the one that has the session, and cannot use it. Connect in this process.
    #[error(
        "the session belongs to the process that forked this one; connect again in this process"
    )]
    Forked,
}

/// Why a request cannot be sent at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum Invalid {
    /// The path is not allowed for a node.
    #[error("{0}")]
    Path(PathError),
    /// The servers close a connection that sends a larger request.
    #[error("a request of {bytes} bytes is larger than {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// Only some modes have a time to live, from 1 ms to 34 years.
    #[error("the time to live is missing, not allowed for this mode, or out of range")]
    Ttl,
    /// Another kind of persistent watch is armed on this path by the same session; servers before 3.9 keep one of them.
    #[error("a persistent watch of another mode is armed on this path")]
    WatchMode,
    /// More requests are in flight than [`Limits`](crate::Limits) allow.
    #[error("too many requests are in flight")]
    TooManyRequests,
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        Self::Invalid(Invalid::Path(error))
    }
}

/// Why no session could be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ConnectError {
    /// The connect string is invalid. Correct it.
    #[error("bad connect string {address:?}: {reason}")]
    BadAddress {
        address: String,
        reason: &'static str,
    },
    /// No server opened a session in time. Each server that was tried has its reason.
    #[error("no session after {:.1} s: {attempts}", after.as_secs_f64())]
    Unreachable { after: Duration, attempts: Attempts },
    /// The servers refuse the credentials. Correct them.
    #[error("authentication failed: {reason}")]
    AuthFailed { reason: String },
    /// The session to take over has expired, or its password is wrong.
    #[error("the session to take over is gone")]
    SessionExpired,
    /// The session was opened, and lost before it could be used. Try again.
    #[error("the session was lost at once: {0}")]
    Lost(Error),
    /// The client was closed, and opens no further session.
    #[error("the client is closed")]
    Closed,
    /// The runtime that was to carry the session is shut down.
    #[error("the runtime of the session is gone")]
    RuntimeGone,
    /// This process is a forked child of the one that has the client, and cannot use it. Connect in this process.
    #[error(
        "the client belongs to the process that forked this one; connect again in this process"
    )]
    Forked,
    /// A certificate or key cannot be used. The message names the file and never shows its contents.
    #[error("TLS: {0}")]
    Tls(String),
}

impl ConnectError {
    /// Whether another attempt may succeed as it stands. A client that is closed opens no session, and wrong addresses, credentials and
    /// certificates stay wrong.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost(_))
    }

    /// Whether the client will never have another session: it was closed, its runtime has ended, or the process is a forked child.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Closed | Self::RuntimeGone | Self::Forked)
    }
}

/// The outcome of the last attempt with each server.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Vec<(String, String)>);

impl Attempts {
    /// Records the outcome of an attempt; it replaces an earlier one.
    pub(crate) fn note(&mut self, host: &str, reason: String) {
        match self.0.iter_mut().find(|(known, _)| known == host) {
            Some((_, known)) => *known = reason,
            None => self.0.push((host.to_owned(), reason)),
        }
    }

    /// Each server with its reason.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(host, reason)| (host.as_str(), reason.as_str()))
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no server was tried");
        }
        for (index, (host, reason)) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{host}: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_are_refusals() {
        assert_eq!(Error::of_code(-101), Error::NO_NODE);
        assert_eq!(Error::of_code(-4), Error::Unknown);
        assert_eq!(Error::of_code(-118), Error::Unknown);
        assert_eq!(Error::of_code(-9999), Error::Unknown);
        assert_eq!(
            Error::of_code(-112),
            Error::SessionEnded(SessionEnd::Expired)
        );
    }

    #[test]
    fn every_error_is_of_one_kind() {
        let too_many = Error::Invalid(Invalid::TooManyRequests);
        let throttled = Error::Refused(ErrorCode::ThrottledOp);
        for error in [Error::NotSent, Error::Unknown, too_many, throttled] {
            assert!(error.is_transient() && !error.is_refusal(), "{error}");
        }
        for error in [Error::NO_NODE, Error::Invalid(Invalid::Ttl)] {
            assert!(error.is_refusal() && !error.is_transient(), "{error}");
        }
        let ended = Error::SessionEnded(SessionEnd::Expired);
        assert!(!ended.is_refusal() && !ended.is_transient());
    }

    #[test]
    fn every_host_has_its_latest_reason() {
        let mut attempts = Attempts::default();
        attempts.note("zk1:2181", "refused".to_owned());
        attempts.note("zk2:2181", "no such host".to_owned());
        attempts.note("zk1:2181", "timed out".to_owned());
        assert_eq!(
            attempts.to_string(),
            "zk1:2181: timed out; zk2:2181: no such host"
        );
    }
}
