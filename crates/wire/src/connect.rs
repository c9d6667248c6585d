//! The handshake: the first frame in either direction, without a header.

use std::fmt;

use bytes::BufMut;

use crate::jute::{Malformed, Reader, Writer};

/// The request with which a client opens a connection. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The highest zxid that the client has seen.
    pub last_zxid_seen: i64,
    /// The session timeout that the client asks for.
    pub timeout_ms: i32,
    /// The session to reattach to, or 0 for a new one.
    pub session_id: i64,
    /// The password of that session.
    pub password: Vec<u8>,
    /// Whether the request had the read-only byte; the reply then has it too. Older clients read a
    /// reply of fixed size and fail on an additional byte.
    pub has_read_only: bool,
}

impl ConnectRequest {
    /// Reads the frame. The protocol version is ignored, as in Apache.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        reader.int()?;
        Ok(Self {
            last_zxid_seen: reader.long()?,
            timeout_ms: reader.int()?,
            session_id: reader.long()?,
            password: reader.buffer()?.unwrap_or_default().to_vec(),
            has_read_only: reader.bool().is_ok(),
        })
    }

    /// Appends the record; the client accepts a read-only server if `read_only` is set.
    pub fn encode(&self, read_only: bool, out: &mut impl BufMut) {
        out.put_i32(0);
        out.put_i64(self.last_zxid_seen);
        out.put_i32(self.timeout_ms);
        out.put_i64(self.session_id);
        out.put_buffer(Some(&self.password));
        if self.has_read_only {
            out.put_bool(read_only);
        }
    }
}

impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("last_zxid_seen", &self.last_zxid_seen)
            .field("timeout_ms", &self.timeout_ms)
            .field("session_id", &self.session_id)
            .field("has_read_only", &self.has_read_only)
            .finish_non_exhaustive()
    }
}

/// The answer: a session, or the refusal of one. `Debug` does not show the password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectReply {
    /// The negotiated timeout; 0 is a refusal.
    pub timeout_ms: i32,
    /// The session.
    pub session_id: i64,
    /// Its password.
    pub password: [u8; 16],
}

impl ConnectReply {
    /// Whether the server opened or reattached the session. Otherwise the session has expired, or the password is wrong.
    pub fn is_session(&self) -> bool {
        self.timeout_ms > 0 && self.session_id != 0
    }

    /// No such session: expired, closed, unknown, or the password is wrong.
    pub const REFUSED: Self = Self {
        timeout_ms: 0,
        session_id: 0,
        password: [0; 16],
    };

    /// Appends the record, with the read-only byte only for clients that sent theirs.
    pub fn encode(&self, has_read_only: bool, out: &mut impl BufMut) {
        out.put_i32(0);
        out.put_i32(self.timeout_ms);
        out.put_i64(self.session_id);
        out.put_buffer(Some(&self.password));
        if has_read_only {
            out.put_bool(false);
        }
    }

    /// Reads the record.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        Self::decode_with_mode(frame).map(|(reply, _)| reply)
    }

    /// Reads the record, and whether the server is read-only. Without the byte, it is not.
    pub fn decode_with_mode(frame: &[u8]) -> Result<(Self, bool), Malformed> {
        let mut reader = Reader::new(frame);
        reader.int()?;
        let reply = Self {
            timeout_ms: reader.int()?,
            session_id: reader.long()?,
            password: reader
                .buffer()?
                .and_then(|bytes| bytes.try_into().ok())
                .ok_or(Malformed)?,
        };
        Ok((reply, reader.bool().unwrap_or(false)))
    }
}

impl fmt::Debug for ConnectReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectReply")
            .field("timeout_ms", &self.timeout_ms)
            .field("session_id", &self.session_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let reply = ConnectReply {
            timeout_ms: 1,
            session_id: 2,
            password: [115; 16],
        };
        let request = ConnectRequest {
            last_zxid_seen: 0,
            timeout_ms: 1,
            session_id: 2,
            password: reply.password.to_vec(),
            has_read_only: true,
        };
        assert!(!format!("{reply:?} {request:?}").contains("115"));
    }

    #[test]
    fn a_refusal_is_zeros() {
        let mut with = Vec::new();
        ConnectReply::REFUSED.encode(true, &mut with);
        let mut expected = vec![0; 16];
        expected.extend([0, 0, 0, 16]);
        expected.extend([0; 17]);
        assert_eq!(with, expected);
        let mut without = Vec::new();
        ConnectReply::REFUSED.encode(false, &mut without);
        assert_eq!(without, expected[..36]);
    }
}
