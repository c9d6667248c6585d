//! Why a request or a connection attempt failed.

use std::fmt;
use std::time::Duration;

pub use bellwether_wire::code::ErrorCode;
pub use bellwether_wire::path::PathError;

/// Why a request has no result.
///
/// The kinds differ in what may have happened on the server, so that a caller knows whether the request may be sent again.
/// [`Error::of_code`] is the one place that decides which codes of a server are answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered no. The request had no effect; sending it again as it stands will not help.
    #[error("{0}")]
    Refused(ErrorCode),
    /// The request never left this process. It had no effect, and it is safe to send it again.
    #[error("the request was not sent")]
    NotSent,
    /// The request was sent and no answer came: it may have taken effect or not.
    #[error("the connection was lost before the reply")]
    Unknown,
    /// The session is over. Its ephemeral nodes are deleted, or will be. A request that was under way may have taken
    /// effect before that.
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
    /// What the error number of a reply means. Only codes that the protocol defines as answers are refusals; every
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

    /// Whether the same request may succeed later: it was not sent, or its fate is unknown.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::NotSent | Self::Unknown)
    }

    /// Whether the session is over.
    pub fn is_session_end(self) -> bool {
        matches!(self, Self::SessionEnded(_))
    }
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The servers expired it, or no server was reached for longer than they keep it.
    #[error("the session expired")]
    Expired,
    /// This process closed it.
    #[error("the session is closed")]
    Closed,
    /// The servers do not accept the credentials.
    #[error("the servers refused the credentials")]
    AuthFailed,
    /// The runtime that carried the session was shut down.
    #[error("the runtime of the session is gone")]
    RuntimeGone,
}

/// Why a request cannot be sent at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum Invalid {
    /// No node can have this path.
    #[error("{0}")]
    Path(PathError),
    /// The servers close a connection that sends a larger request.
    #[error("a request of {bytes} bytes is larger than {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// A time to live belongs to the modes that have one, and is 1 ms to 34 years.
    #[error("the time to live does not fit the mode")]
    Ttl,
    /// Another kind of persistent watch is armed on this path by the same session; servers before 3.9 keep one of them.
    #[error("a persistent watch of another mode is armed on this path")]
    WatchMode,
    /// More requests are under way than the session may have.
    #[error("too many requests are under way")]
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
    /// The connect string cannot be read. Correct it.
    #[error("bad connect string {address:?}: {reason}")]
    BadAddress {
        address: String,
        reason: &'static str,
    },
    /// No server opened a session in time. Each server that was tried has its reason.
    #[error("no session within {limit:?}: {attempts}")]
    Unreachable { limit: Duration, attempts: Attempts },
    /// The servers do not accept the credentials. Correct them.
    #[error("authentication failed: {reason}")]
    AuthFailed { reason: String },
    /// The session to take over has expired, or its password is wrong.
    #[error("the session to take over is gone")]
    SessionExpired,
    /// The session was opened and lost again before it could be used. Try again.
    #[error("the session was lost at once: {0}")]
    Lost(Error),
    /// The runtime that was to carry the session is shut down.
    #[error("the runtime of the session is gone")]
    RuntimeGone,
    /// A certificate or key cannot be used. The message names the file and never shows what is in it.
    #[error("TLS: {0}")]
    Tls(String),
}

/// What became of the last attempt with each server.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Vec<(String, String)>);

impl Attempts {
    /// Notes the outcome of an attempt; the latest one counts.
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
