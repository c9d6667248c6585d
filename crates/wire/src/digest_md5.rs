//! DIGEST-MD5 (RFC 2831) as in ZooKeeper: the computations and the text format of both sides.
//!
//! The password is only as safe as MD5: without TLS, an eavesdropper can try passwords offline.

use std::collections::HashMap;

use md5::{Digest as _, Md5};

/// The host that every client and server uses instead of its own (`SecurityUtils.createSaslClient`). It is also the
/// realm.
pub const REALM: &str = "zk-sasl-md5";
/// The service and the host: constants, so that the digest does not depend on the name of the server.
pub const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";
/// The nonce count: each challenge is answered once.
pub const NONCE_COUNT: &str = "00000001";
/// The only quality of protection in ZooKeeper: authentication, without integrity or encryption of later messages.
pub const QOP: &str = "auth";

/// The values of one exchange that both sides know after the client's answer.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "named as in RFC 2831")]
pub struct Exchange<'a> {
    pub user: &'a str,
    pub password: &'a str,
    /// `None` if the server offers no realm.
    pub realm: Option<&'a str>,
    pub nonce: &'a str,
    pub cnonce: &'a str,
    pub digest_uri: &'a str,
    /// The user to act as, if the client names one.
    pub authzid: Option<&'a str>,
}

impl Exchange<'_> {
    /// The client's proof that it knows the password.
    pub fn response(&self) -> String {
        self.digest(&format!("AUTHENTICATE:{}", self.digest_uri))
    }

    /// The server's proof that it knows the password.
    pub fn proof(&self) -> String {
        self.digest(&format!(":{}", self.digest_uri))
    }

    fn digest(&self, a2: &str) -> String {
        let (nonce, cnonce) = (self.nonce, self.cnonce);
        let secret = Md5::new()
            .chain_update(hashed_form(self.user))
            .chain_update(":")
            .chain_update(hashed_form(self.realm.unwrap_or_default()))
            .chain_update(":")
            .chain_update(hashed_form(self.password))
            .finalize();
        let mut a1 = Md5::new()
            .chain_update(secret)
            .chain_update(format!(":{nonce}:{cnonce}"));
        if let Some(authzid) = self.authzid {
            a1.update(format!(":{authzid}"));
        }
        let (a1, a2) = (hex(a1), hex(Md5::new_with_prefix(a2)));
        let text = format!("{a1}:{nonce}:{NONCE_COUNT}:{cnonce}:{QOP}:{a2}");
        hex(Md5::new_with_prefix(text))
    }
}

impl std::fmt::Debug for Exchange<'_> {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Reads `name=value,name="quoted value"`. Of a directive that is repeated, such as the realms that a server offers, the
/// first one counts.
pub fn directives(text: &str) -> Option<HashMap<&str, String>> {
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

/// Takes a value from the front: quoted, with backslash escapes, or bare.
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

/// Writes a value in quotes.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// A text in ISO 8859-1 if possible, otherwise in UTF-8: RFC 2831 and Java's server hash it in this form.
fn hashed_form(text: &str) -> Vec<u8> {
    let latin1: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
    latin1.unwrap_or_else(|_| text.as_bytes().to_vec())
}

fn hex(digest: Md5) -> String {
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The two examples of RFC 2831, section 4.
    #[test]
    fn examples_of_the_rfc_are_computed_as_printed_there() {
        for (digest_uri, nonce, cnonce, response, proof) in [
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
            let exchange = Exchange {
                user: "chris",
                password: "secret",
                realm: Some("elwood.innosoft.com"),
                nonce,
                cnonce,
                digest_uri,
                authzid: None,
            };
            assert_eq!(exchange.response(), response);
            assert_eq!(exchange.proof(), proof);
            assert!(!format!("{exchange:?}").contains("secret"));
        }
    }

    #[test]
    fn texts_are_hashed_in_latin_1_where_that_is_possible() {
        assert_eq!(hashed_form("a\u{fe}"), b"a\xfe");
        assert_eq!(hashed_form("\u{fe}\u{436}"), "\u{fe}\u{436}".as_bytes());
    }

    #[test]
    fn first_realm_counts_and_spaces_are_ignored() {
        let list = directives("realm=\"a,\\\"b\\\"\", realm=\"c\" ,, qop = \"x,auth\"").unwrap();
        assert_eq!(list["realm"], "a,\"b\"");
        assert_eq!(list["qop"], "x,auth");
    }

    proptest! {
        #[test]
        fn quoting_is_undone_by_reading(name in "[a-z]{1,8}", text in any::<String>()) {
            let list = format!("{name}={}", quoted(&text));
            prop_assert_eq!(&directives(&list).unwrap()[&*name], &text);
        }
    }
}
