//! SASL DIGEST-MD5: a user proves a password without sending it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;

use bellwether_wire::digest_md5::{
    DIGEST_URI, Exchange, NONCE_COUNT, QOP, REALM, directives, quoted,
};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Users and their passwords.
#[derive(Clone, Default)]
pub(crate) struct Users(HashMap<String, String>);

/// State of the exchange with one connection.
#[derive(Debug, Default)]
pub(crate) struct Negotiation {
    /// Nonce of the challenge that is not answered yet.
    challenge: Option<String>,
}

/// Token to send to the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Challenge(String),
    /// The last token, which proves that the server knows the password too, and the user name.
    Proven(String, String),
}

/// The client has not proven the password.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unproven;

impl Users {
    /// Reads lines of `user:password`. Empty lines and those that begin with `#` are skipped.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        Self::parse(&text).map_err(|line| {
            // The line may contain a password, so it is not shown.
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("line {line} is not of the form user:password"),
            )
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, usize> {
        let lines = (1..).zip(text.lines());
        let wanted = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        wanted
            .map(|(number, line)| match line.split_once(':') {
                Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                    Ok((user.to_owned(), password.to_owned()))
                }
                _ => Err(number),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Debug for Users {
    /// Omits the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Negotiation {
    /// After a challenge with this nonce.
    #[cfg(feature = "fuzz")]
    pub(crate) fn challenged(nonce: &str) -> Self {
        Self {
            challenge: Some(nonce.to_owned()),
        }
    }

    /// Handles a token of the client: an empty token asks for a challenge, any other answers one.
    pub(crate) fn step(&mut self, users: &Users, token: &[u8]) -> Result<Step, Unproven> {
        match self.challenge.take() {
            None if token.is_empty() => {
                let nonce = nonce()?;
                let challenge = challenge(&nonce);
                self.challenge = Some(nonce);
                Ok(Step::Challenge(challenge))
            }
            None => Err(Unproven),
            Some(nonce) => prove(users, &nonce, token),
        }
    }
}

fn nonce() -> Result<String, Unproven> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Unproven)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn challenge(nonce: &str) -> String {
    let (realm, nonce, qop) = (quoted(REALM), quoted(nonce), quoted(QOP));
    format!("realm={realm},nonce={nonce},qop={qop},charset=utf-8,algorithm=md5-sess")
}

/// Checks the answer to a challenge. An unknown user takes the same code path as a wrong password.
fn prove(users: &Users, nonce: &str, token: &[u8]) -> Result<Step, Unproven> {
    let token = std::str::from_utf8(token).map_err(|_| Unproven)?;
    let directives = directives(token).ok_or(Unproven)?;
    let get = |name| directives.get(name).map(String::as_str);
    let user = get("username").ok_or(Unproven)?;
    let authzid = get("authzid").filter(|id| !id.is_empty());
    let is_sound = get("nonce") == Some(nonce)
        && get("nc") == Some(NONCE_COUNT)
        && get("qop").is_none_or(|qop| qop == QOP)
        && get("digest-uri") == Some(DIGEST_URI)
        && get("realm").is_none_or(|realm| realm == REALM)
        // A user may act only as itself.
        && authzid.is_none_or(|id| id == user);
    let (Some(cnonce), Some(response), true) = (get("cnonce"), get("response"), is_sound) else {
        return Err(Unproven);
    };
    let password = users.0.get(user);
    let exchange = Exchange {
        user,
        password: password.map_or("", String::as_str),
        realm: get("realm"),
        nonce,
        cnonce,
        digest_uri: DIGEST_URI,
        authzid,
    };
    if is_equal(&exchange.response(), response) && password.is_some() {
        let proof = format!("rspauth={}", exchange.proof());
        Ok(Step::Proven(proof, user.to_owned()))
    } else {
        Err(Unproven)
    }
}

/// Compares in constant time.
fn is_equal(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).map(|(a, b)| a ^ b);
    one.len() == other.len() && differences.fold(0, |all, bits| all | bits) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn users() -> Users {
        Users::parse("# comment\n\nbob:bob secret:with colon\neve:x\n").unwrap()
    }

    /// A client's answer to `challenge`; `change` corrupts it.
    fn answer(
        challenge: &str,
        user: &str,
        password: &str,
        change: impl Fn(&mut Vec<(&str, String)>),
    ) -> String {
        let challenge = directives(challenge).unwrap();
        let exchange = Exchange {
            user,
            password,
            realm: Some(&challenge["realm"]),
            nonce: &challenge["nonce"],
            cnonce: "c",
            digest_uri: DIGEST_URI,
            authzid: Some(user),
        };
        let mut fields = vec![
            ("username", quoted(user)),
            ("realm", quoted(&challenge["realm"])),
            ("nonce", quoted(&challenge["nonce"])),
            ("nc", NONCE_COUNT.to_owned()),
            ("cnonce", quoted("c")),
            ("digest-uri", quoted(DIGEST_URI)),
            ("response", exchange.response()),
            ("authzid", quoted(user)),
        ];
        change(&mut fields);
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        fields.join(",")
    }

    fn challenged() -> (Negotiation, String) {
        let mut negotiation = Negotiation::default();
        match negotiation.step(&users(), b"") {
            Ok(Step::Challenge(challenge)) => (negotiation, challenge),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_user_who_knows_the_password_is_proven_once() {
        let (mut negotiation, challenge) = challenged();
        let token = answer(&challenge, "bob", "bob secret:with colon", |_| {});
        match negotiation.step(&users(), token.as_bytes()) {
            Ok(Step::Proven(proof, user)) => {
                assert!(proof.starts_with("rspauth=") && user == "bob")
            }
            other => panic!("{other:?}"),
        }
        // The same answer again: its challenge is used up.
        assert_eq!(negotiation.step(&users(), token.as_bytes()), Err(Unproven));
    }

    #[test]
    fn anything_else_proves_nothing() {
        let spoil = |name: &'static str, value: &'static str| {
            move |fields: &mut Vec<(&str, String)>| {
                for field in fields.iter_mut().filter(|field| field.0 == name) {
                    field.1 = value.to_owned();
                }
            }
        };
        for (user, password) in [
            ("bob", "wrong"),
            ("nobody", ""),
            ("", ""),
            ("eve", "bob secret:with colon"),
        ] {
            let (mut negotiation, challenge) = challenged();
            let token = answer(&challenge, user, password, |_| {});
            assert_eq!(
                negotiation.step(&users(), token.as_bytes()),
                Err(Unproven),
                "{user}"
            );
        }
        for (name, value) in [
            ("nonce", "\"0123\""),
            ("nc", "00000002"),
            ("digest-uri", "\"zookeeper/elsewhere\""),
            ("authzid", "\"eve\""),
            ("realm", "\"another\""),
            ("response", ""),
            ("username", "\"eve\""),
        ] {
            let (mut negotiation, challenge) = challenged();
            let token = answer(
                &challenge,
                "bob",
                "bob secret:with colon",
                spoil(name, value),
            );
            assert_eq!(
                negotiation.step(&users(), token.as_bytes()),
                Err(Unproven),
                "{name}"
            );
        }
        let mut unasked = Negotiation::default();
        assert_eq!(unasked.step(&users(), b"username=\"bob\""), Err(Unproven));
    }

    #[test]
    fn passwords_are_not_shown_and_bad_lines_are_named_by_number() {
        assert!(!format!("{:?}", users()).contains("secret"));
        assert_eq!(Users::parse("bob:x\nsecret").unwrap_err(), 2);
        assert_eq!(Users::parse("bob:").unwrap_err(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(bytes in any::<Vec<u8>>()) {
            let (mut negotiation, _) = challenged();
            prop_assert_eq!(negotiation.step(&users(), &bytes), Err(Unproven));
        }
    }
}
