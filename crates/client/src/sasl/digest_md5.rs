//! DIGEST-MD5 (RFC 2831), the client's side, as Apache's servers want it. No I/O and no random numbers.

use std::collections::HashMap;
use std::fmt;

use md5::{Digest as _, Md5};

/// The service and the host that every client of ZooKeeper names. They are constants (`SecurityUtils.createSaslClient`), so the
/// digest does not depend on the name of the server.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";
/// Each challenge is answered once.
const NONCE_COUNT: &str = "00000001";
/// The only quality of protection that ZooKeeper has: authentication, and nothing for what follows it.
const QOP: &str = "auth";

/// A user and a password. The password is never shown.
#[derive(Clone)]
pub(crate) struct DigestMd5 {
    user: String,
    password: String,
}

/// The answer to a challenge.
pub(crate) struct Response {
    /// What the server gets.
    pub(crate) token: Vec<u8>,
    /// What a server that knows the password says at the end.
    proof: String,
}

/// Why a user is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SaslError {
    #[error("SASL: the server refused the user or the password")]
    Refused,
    #[error("SASL: the server is not configured for it")]
    NotConfigured,
    #[error("SASL: the server's challenge is not one of DIGEST-MD5")]
    Challenge,
    #[error("SASL: the server does not know the password itself")]
    ServerProof,
}

impl DigestMd5 {
    pub(crate) fn new(user: String, password: String) -> Self {
        Self { user, password }
    }

    /// Answers a challenge. `cnonce` is a random text of hexadecimal digits that is used once.
    pub(crate) fn respond(&self, challenge: &[u8], cnonce: &str) -> Result<Response, SaslError> {
        self.respond_for(DIGEST_URI, challenge, cnonce)
    }

    fn respond_for(
        &self,
        digest_uri: &str,
        challenge: &[u8],
        cnonce: &str,
    ) -> Result<Response, SaslError> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| SaslError::Challenge)?;
        let directives = directives(challenge).ok_or(SaslError::Challenge)?;
        let get = |name| directives.get(name).map(String::as_str);
        let nonce = get("nonce").ok_or(SaslError::Challenge)?;
        let offers_auth = get("qop").is_none_or(|qop| qop.split(',').any(|q| q.trim() == QOP));
        if get("algorithm") != Some("md5-sess") || !offers_auth {
            return Err(SaslError::Challenge);
        }
        let realm = get("realm");
        let secret = Md5::new()
            .chain_update(hashed_form(&self.user))
            .chain_update(":")
            .chain_update(hashed_form(realm.unwrap_or_default()))
            .chain_update(":")
            .chain_update(hashed_form(&self.password))
            .finalize();
        let a1 = Md5::new()
            .chain_update(secret)
            .chain_update(format!(":{nonce}:{cnonce}"));
        let a1 = hex(a1);
        let digest = |a2: String| {
            let a2 = hex(Md5::new_with_prefix(a2));
            let text = format!("{a1}:{nonce}:{NONCE_COUNT}:{cnonce}:{QOP}:{a2}");
            hex(Md5::new_with_prefix(text))
        };
        let mut token = format!("charset=utf-8,username={}", quoted(&self.user));
        if let Some(realm) = realm {
            token += &format!(",realm={}", quoted(realm));
        }
        token += &format!(
            ",nonce={},nc={NONCE_COUNT},cnonce={},digest-uri={},response={},qop={QOP}",
            quoted(nonce),
            quoted(cnonce),
            quoted(digest_uri),
            digest(format!("AUTHENTICATE:{digest_uri}")),
        );
        Ok(Response {
            token: token.into_bytes(),
            proof: digest(format!(":{digest_uri}")),
        })
    }
}

impl Response {
    /// Checks the server's last token: it must prove that the server knows the password too.
    pub(crate) fn check(&self, token: &[u8]) -> Result<(), SaslError> {
        let token = std::str::from_utf8(token).ok().and_then(directives);
        match token.as_ref().and_then(|token| token.get("rspauth")) {
            Some(proof) if *proof == self.proof => Ok(()),
            _ => Err(SaslError::ServerProof),
        }
    }
}

/// Reads `name=value,name="quoted value"`. Of a directive that is repeated, such as the realms that a server offers, the first one
/// counts.
fn directives(text: &str) -> Option<HashMap<&str, String>> {
    let mut directives = HashMap::new();
    let mut rest = text;
    loop {
        // Empty elements of a list are allowed.
        rest = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            return Some(directives);
        }
        let (name, behind) = rest.split_once('=')?;
        let (value, behind) = value(behind.trim_start())?;
        directives.entry(name.trim()).or_insert(value);
        rest = behind.trim_start();
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

/// Takes a value from the front: quoted, with backslashes before what would end it, or bare.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return Some((value.trim_end().to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()? {
            (end, '"') => return Some((value, &quoted[end + 1..])),
            (_, '\\') => value.push(chars.next()?.1),
            (_, other) => value.push(other),
        }
    }
}

/// A text in ISO 8859-1 if it can be written so, otherwise in UTF-8: what RFC 2831 wants hashed, and Java's server hashes.
fn hashed_form(text: &str) -> Vec<u8> {
    let latin1: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
    latin1.unwrap_or_else(|_| text.as_bytes().to_vec())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}

fn hex(digest: Md5) -> String {
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
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

    /// The two examples of RFC 2831, section 4.
    #[test]
    fn examples_of_the_rfc_are_answered_as_printed_there() {
        for (digest_uri, nonce, cnonce, response, rspauth) in [
            (
                "imap/elwood.innosoft.com",
                "OA6MG9tEQGm2hh",
                "OA6MHXh6VqTrRk",
                "d388dad90d4bbd760a152321f2143af7",
                "ea40f60335c427b5527b84dbabcdfffd",
            ),
            (
                "acap/elwood.innosoft.com",
                "OA9BSXrbuRhWay",
                "OA9BSuZWMSpW8m",
                "6084c6db3fede7352c551284490fd0fc",
                "2f0b3d7c3c2e486600ef710726aa2eae",
            ),
        ] {
            let challenge = format!(
                "realm=\"elwood.innosoft.com\",nonce=\"{nonce}\",qop=\"auth\",algorithm=md5-sess,charset=utf-8"
            );
            let answer = chris().respond_for(digest_uri, challenge.as_bytes(), cnonce);
            let answer = answer.unwrap_or_else(|error| panic!("{error}"));
            let token = String::from_utf8(answer.token.clone()).unwrap();
            let token = directives(&token).unwrap();
            assert_eq!(token["response"], response);
            assert_eq!(token["username"], "chris");
            assert_eq!(token["digest-uri"], digest_uri);
            assert_eq!(token["nc"], "00000001");
            answer
                .check(format!("rspauth={rspauth}").as_bytes())
                .unwrap();
            for wrong in ["", "rspauth=", &format!("rspauth={response}"), "\u{0}"] {
                assert_eq!(answer.check(wrong.as_bytes()), Err(SaslError::ServerProof));
            }
        }
    }

    #[test]
    fn texts_are_hashed_in_latin_1_where_that_is_possible() {
        assert_eq!(hashed_form("a\u{fe}"), b"a\xfe");
        assert_eq!(hashed_form("\u{fe}\u{436}"), "\u{fe}\u{436}".as_bytes());
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
    fn first_realm_counts_and_spaces_are_ignored() {
        let list = directives("realm=\"a,\\\"b\\\"\", realm=\"c\" ,, qop = \"x,auth\"").unwrap();
        assert_eq!(list["realm"], "a,\"b\"");
        assert_eq!(list["qop"], "x,auth");
    }

    #[test]
    fn password_is_not_shown() {
        assert!(!format!("{:?}", chris()).contains("secret"));
    }

    proptest! {
        #[test]
        fn quoting_is_undone_by_reading(name in "[a-z]{1,8}", text in any::<String>()) {
            let list = format!("{name}={}", quoted(&text));
            prop_assert_eq!(&directives(&list).unwrap()[&*name], &text);
        }

        #[test]
        fn any_bytes_are_a_challenge_or_an_error(bytes in any::<Vec<u8>>()) {
            let _ = chris().respond(&bytes, "0");
        }
    }
}
