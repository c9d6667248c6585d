//! What the clients of a private server know, and nobody else.

use std::fmt;

use sha1::{Digest, Sha1};

use crate::proto::acl::Id;
use crate::tree::access;

/// A secret that makes a server private.
///
/// Only connections that have authenticated by it are served: scheme `digest`, with [`Secret::credential`]. The
/// passwords of sessions follow from it too. Apache's follow from the session's id alone, so that everybody who can
/// connect can take a session over; here nobody can. In exchange, such a session cannot move to an Apache server.
#[derive(Clone)]
pub struct Secret {
    secret: String,
    id: Id,
}

impl Secret {
    /// A server is as private as this is hard to guess: use at least 128 random bits, as text without colons.
    pub fn new(secret: impl Into<String>) -> Self {
        let secret = secret.into();
        let id = Id::new("digest", access::digest_id(&credential(&secret)));
        Self { secret, id }
    }

    /// What a client authenticates with, in scheme `digest`.
    pub fn credential(&self) -> String {
        credential(&self.secret)
    }

    pub(crate) fn is_known_to(&self, ids: &[Id]) -> bool {
        ids.contains(&self.id)
    }

    /// The password of a session. Hashing the secret ahead of an id of fixed length is sound where only a part of the
    /// hash is given away, as here.
    pub(crate) fn password(&self, session: i64) -> [u8; 16] {
        let hash = Sha1::new()
            .chain_update(self.secret.as_bytes())
            .chain_update(session.to_be_bytes())
            .finalize();
        *hash.first_chunk().expect("the hash has 20 bytes")
    }
}

fn credential(secret: &str) -> String {
    format!("bellwether:{secret}")
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_depend_on_secret_and_session() {
        let (a, b) = (Secret::new("a"), Secret::new("b"));
        assert_eq!(a.password(1), Secret::new("a").password(1));
        assert_ne!(a.password(1), b.password(1));
        assert_ne!(a.password(1), a.password(2));
    }

    #[test]
    fn secret_is_not_shown() {
        assert!(!format!("{:?}", Secret::new("hunter2")).contains("hunter2"));
    }
}
