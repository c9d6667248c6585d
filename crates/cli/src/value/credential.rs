//! A credential, such as `digest:USER:PASSWORD`.

use std::fmt;
use std::str::FromStr;

/// `Debug` shows only the scheme, because the rest is secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) scheme: String,
    pub(crate) proof: String,
}

impl FromStr for Credential {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some((scheme, proof)) if !scheme.is_empty() && !proof.is_empty() => Ok(Self {
                scheme: scheme.to_owned(),
                proof: proof.to_owned(),
            }),
            _ => Err("a credential has the form SCHEME:PROOF, such as digest:USER:PASSWORD"),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({}:…)", self.scheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_is_split_from_the_proof_and_the_proof_is_not_shown() {
        let credential: Credential = "digest:me:secret".parse().unwrap();
        assert_eq!(
            (&*credential.scheme, &*credential.proof),
            ("digest", "me:secret")
        );
        assert_eq!(format!("{credential:?}"), "Credential(digest:…)");
        for text in ["", "digest", "digest:", ":me"] {
            assert!(text.parse::<Credential>().is_err(), "{text}");
        }
    }
}
