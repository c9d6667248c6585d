//! Formats the subject of a certificate as RFC 2253 text, exactly as Java prints it (`X500Principal.getName`), because access lists compare
//! it character by character.
//!
//! Parses only as much DER as it takes to find the subject of a certificate whose signature is already verified.

use std::fmt::Write as _;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
/// Tag of the optional version, the only element with this tag.
const VERSION: u8 = 0xA0;

/// Attributes that Java prints with a keyword in this form, by the bytes of their object ids.
const KEYWORDS: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25],
        "DC",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 1],
        "UID",
    ),
];

/// Tags of string types: UTF-8, printable, teletex, IA5, general, universal and BMP.
const STRINGS: [u8; 7] = [0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E];

/// Characters that Java escapes at any position.
const ESCAPED: &str = ",=+<>#;\"\\";

/// Returns the subject of a certificate, or `None` if it cannot be parsed.
pub(crate) fn of(certificate: &[u8]) -> Option<String> {
    let mut certificate = Der(certificate).expect(SEQUENCE)?;
    let mut fields = certificate.expect(SEQUENCE)?;
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    // Serial number, algorithm, issuer and validity precede it.
    for _ in 0..4 {
        fields.next()?;
    }
    name(fields.expect(SEQUENCE)?)
}

/// Formats the parts in reverse order: text starts with the most specific part, the certificate ends with it.
fn name(mut parts: Der<'_>) -> Option<String> {
    let mut texts = Vec::new();
    while !parts.0.is_empty() {
        let mut attributes = parts.expect(SET)?;
        let mut texts_of_part = Vec::new();
        while !attributes.0.is_empty() {
            texts_of_part.push(attribute(attributes.expect(SEQUENCE)?)?);
        }
        texts.push(texts_of_part.join("+"));
    }
    texts.reverse();
    Some(texts.join(","))
}

fn attribute(mut attribute: Der<'_>) -> Option<String> {
    let id = attribute.expect(OBJECT_ID)?.0;
    let encoded = attribute.0;
    let (tag, value) = attribute.next()?;
    let keyword = KEYWORDS.iter().find(|(known, _)| *known == id);
    match keyword {
        Some((_, keyword)) if STRINGS.contains(&tag) => Some(format!(
            "{keyword}={}",
            escaped(&String::from_utf8_lossy(value))
        )),
        _ => {
            let name = match keyword {
                Some((_, keyword)) => (*keyword).to_owned(),
                None => dotted(id)?,
            };
            let mut text = format!("{name}=#");
            for byte in encoded {
                write!(text, "{byte:02x}").ok()?;
            }
            Some(text)
        }
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars() {
        match character {
            '\0' => text.push_str("\\00"),
            _ => {
                if ESCAPED.contains(character) {
                    text.push('\\');
                }
                text.push(character);
            }
        }
    }
    let is_blank = |character| matches!(character, ' ' | '\r');
    let inner = text.trim_matches(is_blank);
    let start = text.len() - text.trim_start_matches(is_blank).len();
    let end = start + inner.len();
    let blanks = |blanks: &str| {
        blanks
            .chars()
            .map(|blank| format!("\\{blank}"))
            .collect::<String>()
    };
    format!(
        "{}{inner}{}",
        blanks(&text[..start]),
        blanks(&text[end.min(text.len())..])
    )
}

/// Formats an object id as digits and dots.
fn dotted(id: &[u8]) -> Option<String> {
    let mut numbers = Vec::new();
    let mut number = 0u64;
    for byte in id {
        number = number
            .checked_mul(128)?
            .checked_add(u64::from(byte & 0x7F))?;
        if byte & 0x80 == 0 {
            numbers.push(number);
            number = 0;
        }
    }
    let (first, rest) = numbers.split_first()?;
    let top = (*first / 40).min(2);
    let mut text = format!("{top}.{}", first - top * 40);
    for number in rest {
        write!(text, ".{number}").ok()?;
    }
    Some(text)
}

/// A sequence of DER elements.
#[derive(Debug, Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Takes the next element: tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&length, rest) = rest.split_first()?;
        let (length, rest) = match length {
            0..=0x7F => (usize::from(length), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
                let length = bytes
                    .iter()
                    .fold(0, |all, byte| all << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Takes the next element, which must have the tag `wanted`.
    fn expect(&mut self, wanted: u8) -> Option<Der<'a>> {
        let (tag, content) = self.next()?;
        (tag == wanted).then_some(Der(content))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(parts: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    /// Expected texts: what Java 17 prints, as Apache's server reported (`whoAmI`). The interchange test compares them again.
    #[test]
    fn names_are_printed_as_java_prints_them() {
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        let parts = [
            (
                DnType::CountryName,
                DnValue::PrintableString("DE".try_into().unwrap()),
            ),
            (DnType::OrganizationName, utf8("Flock, Inc.")),
            (DnType::OrganizationalUnitName, utf8(" a=b+c ")),
            (DnType::CommonName, utf8("Zo\u{eb} \"#1\"")),
        ];
        assert_eq!(
            of(&certificate(&parts)).unwrap(),
            "CN=Zo\u{eb} \\\"\\#1\\\",OU=\\ a\\=b\\+c\\ ,O=Flock\\, Inc.,C=DE"
        );
        // An attribute without a keyword: printed as its object id and the bytes of its value.
        let surname = DnType::CustomDnType(vec![2, 5, 4, 4]);
        let parts = [(surname, utf8("Mus")), (DnType::CommonName, utf8("x"))];
        assert_eq!(
            of(&certificate(&parts)).unwrap(),
            "CN=x,2.5.4.4=#0c034d7573"
        );
        assert_eq!(of(&certificate(&[])).unwrap(), "");
    }

    #[test]
    fn blanks_at_the_ends_are_escaped_once() {
        for (value, text) in [
            ("  ", "\\ \\ "),
            (" x", "\\ x"),
            ("", ""),
            ("a b", "a b"),
            ("\0", "\\00"),
        ] {
            assert_eq!(escaped(value), text);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_name_or_none(bytes in any::<Vec<u8>>()) {
            let _ = of(&bytes);
        }

        #[test]
        fn a_certificate_that_is_cut_or_changed_is_a_name_or_none(at in 0usize..400, flip in 1u8..) {
            let mut bytes = certificate(&[(DnType::CommonName, DnValue::Utf8String("x".into()))]);
            let _ = of(&bytes[..at.min(bytes.len())]);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= flip;
            }
            let _ = of(&bytes);
        }
    }
}
