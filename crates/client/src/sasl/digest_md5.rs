//! DIGEST-MD5 (RFC 2831), the client's side, as Apache's servers expect it. No I/O and no random numbers.

use std::fmt;

use bellwether_wire::digest_md5::{DIGEST_URI, Exchange, NONCE_COUNT, QOP, directives, quoted};

/// A user and a password. `Debug` does not show the password.
#[derive(Clone)]
pub(crate) struct DigestMd5 {
    user: String,
    password: String,
}

/// The answer to a challenge.
pub(crate) struct Response {
    /// The token for the server.
    pub(crate) token: Vec<u8>,
    /// The last token of a server that knows the password.
    proof: String,
}

/// Why a user is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SaslError {
    #[error("SASL: the server refused the user or the password")]
    Refused,
    #[error("SASL: the server is not configured for SASL")]
    NotConfigured,
    #[error("SASL: the server's challenge is not DIGEST-MD5")]
    Challenge,
    #[error("SASL: the server does not know the password")]
    ServerProof,
}

impl DigestMd5 {
    pub(crate) fn new(user: String, password: String) -> Self {
        Self { user, password }
    }

    /// Answers a challenge. `cnonce` is a random text of hexadecimal digits that is used once.
    pub(crate) fn respond(&self, challenge: &[u8], cnonce: &str) -> Result<Response, SaslError> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| SaslError::Challenge)?;
        let directives = directives(challenge).ok_or(SaslError::Challenge)?;
        let get = |name| directives.get(name).map(String::as_str);
        let nonce = get("nonce").ok_or(SaslError::Challenge)?;
        let offers_auth = get("qop").is_none_or(|qop| qop.split(',').any(|q| q.trim() == QOP));
        if get("algorithm") != Some("md5-sess") || !offers_auth {
            return Err(SaslError::Challenge);
        }
        let realm = get("realm");
        let exchange = Exchange {
            user: &self.user,
            password: &self.password,
            realm,
            nonce,
            cnonce,
            digest_uri: DIGEST_URI,
            authzid: None,
        };
        let mut token = format!("charset=utf-8,username={}", quoted(&self.user));
        if let Some(realm) = realm {
            token += &format!(",realm={}", quoted(realm));
        }
        token += &format!(
            ",nonce={},nc={NONCE_COUNT},cnonce={},digest-uri={},response={},qop={QOP}",
            quoted(nonce),
            quoted(cnonce),
            quoted(DIGEST_URI),
            exchange.response(),
        );
        Ok(Response {
            token: token.into_bytes(),
            proof: exchange.proof(),
        })
    }
}

impl Response {
    /// Checks the server's last token, which proves that the server knows the password.
    pub(crate) fn check(&self, token: &[u8]) -> Result<(), SaslError> {
        let token = std::str::from_utf8(token).ok().and_then(directives);
        match token.as_ref().and_then(|token| token.get("rspauth")) {
            Some(proof) if *proof == self.proof => Ok(()),
            _ => Err(SaslError::ServerProof),
        }
    }
}

impl fmt::Debug for DigestMd5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestMd5")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chris() -> DigestMd5 {
        DigestMd5::new("chris".to_owned(), "secret".to_owned())
    }

    #[test]
    fn only_the_proof_of_a_server_that_knows_the_password_counts() {
        let challenge = b"realm=\"zk-sasl-md5\",nonce=\"n\",qop=\"auth\",algorithm=md5-sess";
        let answer = chris().respond(challenge, "0");
        let answer = answer.unwrap_or_else(|error| panic!("{error}"));
        let proof = answer.proof.clone();
        answer.check(format!("rspauth={proof}").as_bytes()).unwrap();
        let wrong = "0".repeat(proof.len());
        for wrong in ["", "rspauth=", &format!("rspauth={wrong}"), "\u{0}"] {
            assert_eq!(answer.check(wrong.as_bytes()), Err(SaslError::ServerProof));
        }
    }

    #[test]
    fn challenges_that_are_none_are_refused() {
        for challenge in [
            &b""[..],
            b"\xff\xfe",
            b"nonce=\"x\"",
            b"nonce=\"x\",algorithm=md5",
            b"nonce=\"x\",algorithm=md5-sess,qop=\"auth-int\"",
            b"nonce=\"x,algorithm=md5-sess",
            b"nonce=\"x\"algorithm=md5-sess",
            b"algorithm=md5-sess",
        ] {
            let answer = chris().respond(challenge, "0");
            assert_eq!(answer.err(), Some(SaslError::Challenge), "{challenge:?}");
        }
    }

    #[test]
    fn password_is_not_shown() {
        assert!(!format!("{:?}", chris()).contains("secret"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_challenge_or_an_error(bytes in any::<Vec<u8>>()) {
            let _ = chris().respond(&bytes, "0");
        }
    }
}
