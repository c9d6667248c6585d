//! Credentials and limits of a session.

use std::fmt;
use std::time::Duration;

/// The largest request that Apache's servers accept by default (`jute.maxbuffer`).
const REQUEST_BYTES_MAX: usize = 0xF_FFFF;

/// A credential. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    scheme: String,
    secret: Vec<u8>,
}

impl Credential {
    /// A credential of an authentication scheme: `digest` with `user:password`, for example.
    pub fn new(scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        Self {
            scheme: scheme.into(),
            secret: secret.into(),
        }
    }

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

/// The id and password of a session, with which another process can take it over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionKey {
    pub(crate) id: i64,
    pub(crate) password: [u8; 16],
}

impl SessionKey {
    /// The key of the session `id`.
    pub fn new(id: i64, password: [u8; 16]) -> Self {
        Self { id, password }
    }

    /// The id, as the tools of the servers show it.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The password. Every process that has it can take the session over.
    pub fn password(&self) -> [u8; 16] {
        self.password
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKey")
            .field("id", &format_args!("{:#x}", self.id))
            .finish_non_exhaustive()
    }
}

/// Limits of one session. A request beyond a limit is refused before it is sent.
///
/// If there are too many requests, all are refused for [`OVERLOAD_PAUSE`], so that none overtakes one that was made before it; and each refusal
/// is reported only after that time, so that a caller that repeats its request in a loop does not spin.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest request: servers close the connection of a client that sends a larger one. 1,048,575 bytes.
    pub request_bytes_max: usize,
    /// The largest reply: a connection with a larger one is broken. 64 MiB.
    pub reply_bytes_max: usize,
    /// Requests without an answer. 100,000.
    pub requests_max: usize,
    /// Bytes of requests that wait for a connection, or that the socket has not accepted yet. 64 MiB.
    pub buffered_bytes_max: usize,
    /// Unread events of one persistent watch. Further events are dropped, and
    /// [`PersistentEvent::Missed`](crate::PersistentEvent::Missed) says so. 10,000.
    pub events_max: usize,
    /// How long a request may be without an answer. One that waits longer for a connection is not sent; one that was sent ends its
    /// connection, because replies come in order. By default only the session limits it.
    pub request_timeout: Option<Duration>,
}

/// How long requests are refused when there were too many, and how long each refusal takes.
pub const OVERLOAD_PAUSE: Duration = Duration::from_millis(100);

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: REQUEST_BYTES_MAX,
            reply_bytes_max: 64 * 1024 * 1024,
            requests_max: 100_000,
            buffered_bytes_max: 64 * 1024 * 1024,
            events_max: 10_000,
            request_timeout: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let credential = Credential::new("digest", "alice:swordfish");
        assert!(!format!("{credential:?}").contains("swordfish"));
        let key = SessionKey::new(1, *b"swordfishswordfi");
        assert!(!format!("{key:?}").contains("115"));
    }
}
