//! Access control: access lists and the ids of a connection.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellwether_wire::acl::{Acl, Id, READ, RawAcl};
use bellwether_wire::code::ErrorCode;
use sha1::{Digest as _, Sha1};

use super::txn::AclList;

/// The list that allows everything to every client.
pub(crate) fn open() -> AclList {
    static OPEN: LazyLock<AclList> = LazyLock::new(|| Arc::new([Acl::open()]));
    OPEN.clone()
}

/// The list that allows every client to read, and nothing else.
pub(crate) fn world_readable() -> AclList {
    Arc::new([Acl {
        perms: READ,
        id: Id::new("world", "anyone"),
    }])
}

/// Placeholder for a list that is missing in a snapshot: allows nothing.
pub(crate) fn unknown() -> AclList {
    static UNKNOWN: LazyLock<AclList> = LazyLock::new(|| {
        Arc::new([Acl {
            perms: 0,
            id: Id::new("unknown", ""),
        }])
    });
    UNKNOWN.clone()
}

/// Whether `acl` is that placeholder.
pub(crate) fn is_unknown(acl: &AclList) -> bool {
    Arc::ptr_eq(acl, &unknown())
}

/// Optional schemes that access lists may name, besides `world`, `auth`, `digest` and `ip`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Schemes {
    pub(crate) x509: bool,
    pub(crate) sasl: bool,
    pub(crate) unix: bool,
}

impl Schemes {
    fn has(self, scheme: &str) -> bool {
        match scheme {
            "world" | "digest" | "ip" => true,
            "x509" => self.x509,
            "sasl" => self.sasl,
            "unix" => self.unix,
            _ => false,
        }
    }
}

/// Whether one of `ids` has one of `perms` under `acl`.
pub(crate) fn allows(acl: &[Acl], perms: i32, ids: &[Id]) -> bool {
    acl.is_empty()
        || acl.iter().any(|entry| {
            entry.perms & perms != 0
                && (is_world(&entry.id) || ids.iter().any(|id| matches(&entry.id, id)))
        })
        || ids.iter().any(|id| id.scheme == "super")
}

fn is_world(id: &Id) -> bool {
    id.scheme == "world" && id.id == "anyone"
}

fn matches(wanted: &Id, have: &Id) -> bool {
    wanted.scheme == have.scheme
        && match wanted.scheme.as_str() {
            "ip" => Network::parse(&wanted.id)
                .zip(have.id.parse().ok())
                .is_some_and(|(network, address)| network.contains(address)),
            _ => wanted.id == have.id,
        }
}

/// The list to store for the one that a client sent: checked, without duplicates, and with `auth` replaced by the ids of the connection
/// (`PrepRequestProcessor.fixupACL`).
///
/// Its size is subtracted from `bytes_left`, because `auth` can expand a short list to a long one. A longer list is refused.
pub(crate) fn resolve(
    list: Option<Vec<RawAcl>>,
    ids: &[Id],
    schemes: Schemes,
    bytes_left: &mut usize,
) -> Result<Vec<Acl>, ErrorCode> {
    let list = list
        .filter(|list| !list.is_empty())
        .ok_or(ErrorCode::InvalidAcl)?;
    let mut resolved = Distinct::with_capacity(list.len());
    let mut expanded = HashSet::new();
    for RawAcl { perms, scheme, id } in list {
        let scheme = scheme.ok_or(ErrorCode::InvalidAcl)?;
        if scheme == "auth" {
            // Addresses and the super user cannot own a node.
            let is_owner =
                |id: &&Id| matches!(id.scheme.as_str(), "digest" | "sasl" | "unix" | "x509");
            let mut authenticated = ids.iter().filter(is_owner).peekable();
            if authenticated.peek().is_none() {
                return Err(ErrorCode::InvalidAcl);
            }
            if expanded.insert(perms) {
                for id in authenticated {
                    let id = id.clone();
                    resolved.push(Acl { perms, id }, bytes_left)?;
                }
            }
            continue;
        }
        if !schemes.has(&scheme) {
            return Err(ErrorCode::InvalidAcl);
        }
        let id = id.ok_or(ErrorCode::MarshallingError)?;
        if !is_valid(&scheme, &id) {
            return Err(ErrorCode::InvalidAcl);
        }
        let id = Id { scheme, id };
        resolved.push(Acl { perms, id }, bytes_left)?;
    }
    Ok(resolved.list)
}

/// A list without duplicates, in order of first occurrence.
struct Distinct {
    list: Vec<Acl>,
    /// The same entries, filled from the second one on: most lists have one.
    seen: HashSet<Acl>,
}

impl Distinct {
    fn with_capacity(count: usize) -> Self {
        Self {
            list: Vec::with_capacity(count),
            seen: HashSet::new(),
        }
    }

    fn push(&mut self, acl: Acl, bytes_left: &mut usize) -> Result<(), ErrorCode> {
        if let [first, ..] = &self.list[..] {
            if self.seen.is_empty() {
                self.seen.insert(first.clone());
            }
            if !self.seen.insert(acl.clone()) {
                return Ok(());
            }
        }
        *bytes_left = bytes_left
            .checked_sub(acl.encoded_bytes())
            .ok_or(ErrorCode::InvalidAcl)?;
        self.list.push(acl);
        Ok(())
    }
}

/// Whether `id` is valid for an available scheme.
fn is_valid(scheme: &str, id: &str) -> bool {
    match scheme {
        "world" => id == "anyone",
        "ip" => Network::parse(id).is_some(),
        "digest" => is_digest_id(id),
        "x509" => is_distinguished_name(id),
        "unix" => id.parse().is_ok_and(|user: u32| user.to_string() == id),
        _ => !id.is_empty(),
    }
}

/// Attributes with values, separated by unescaped commas. An id that no certificate can have does no harm, so this does not check the whole
/// syntax of RFC 2253.
fn is_distinguished_name(id: &str) -> bool {
    let mut is_escaped = false;
    let mut parts = id.split(|character| {
        let is_end = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    });
    parts.all(|part| {
        part.split_once('=')
            .is_some_and(|(name, _)| !name.trim().is_empty())
    })
}

/// Two parts around a colon, counted like Java's `split`, which drops trailing empty parts.
fn is_digest_id(id: &str) -> bool {
    let mut parts: Vec<_> = id.split(':').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts.len() == 2
}

/// Id of a client that sends `user:password`.
pub(crate) fn digest_id(user_password: &str) -> String {
    let user = user_password.split(':').next().unwrap_or_default();
    format!(
        "{user}:{}",
        STANDARD.encode(Sha1::digest(user_password.as_bytes()))
    )
}

/// The list without its hashes, for clients without the right to change it.
pub(crate) fn redact(acl: &[Acl]) -> Vec<Acl> {
    let redacted = |entry: &Acl| match entry.id.id.split_once(':') {
        Some((user, _)) if entry.id.scheme == "digest" => Acl {
            perms: entry.perms,
            id: Id::new("digest", format!("{user}:x")),
        },
        _ => entry.clone(),
    };
    acl.iter().map(redacted).collect()
}

/// Adds an id to those of a connection, in the order of a Java hash set: clients see that order in `whoAmI` and in expanded lists.
pub(crate) fn with_id(ids: &[Id], more: Id) -> Arc<[Id]> {
    let mut all = ids.to_vec();
    if !all.contains(&more) {
        all.push(more);
    }
    all.sort_by_key(java_bucket);
    all.into()
}

fn java_bucket(id: &Id) -> u32 {
    let text = |text: &str| {
        text.encode_utf16().fold(0u32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(unit.into())
        })
    };
    let hash = (37 * 17u32)
        .wrapping_add(text(&id.scheme))
        .wrapping_mul(37)
        .wrapping_add(text(&id.id));
    (hash ^ hash >> 16) % 16
}

/// An address with a prefix length.
struct Network {
    address: u32,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, 32),
            Some((address, bits)) => (address, bits.parse().ok().filter(|bits| *bits <= 32)?),
        };
        let mut parts = address.split('.').map(|part| part.parse::<u8>().ok());
        let quad = [
            parts.next()??,
            parts.next()??,
            parts.next()??,
            parts.next()??,
        ];
        parts.next().is_none().then(|| Self {
            address: u32::from_be_bytes(quad),
            bits,
        })
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        let differing = self.address ^ u32::from(address);
        differing.checked_shr(32 - self.bits).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(perms: i32, scheme: &str, id: &str) -> RawAcl {
        RawAcl {
            perms,
            scheme: Some(scheme.into()),
            id: Some(id.into()),
        }
    }

    fn checked(list: Option<Vec<RawAcl>>, ids: &[Id]) -> Result<Vec<Acl>, ErrorCode> {
        resolve(list, ids, Schemes::default(), &mut 1000)
    }

    #[test]
    fn the_digest_is_apaches() {
        assert_eq!(
            digest_id("user:password"),
            "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY="
        );
        assert_eq!(
            digest_id("super:admin"),
            "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
        );
    }

    #[test]
    fn digest_ids_have_two_parts() {
        for id in ["a:b", ":b", "a:b:"] {
            assert!(
                checked(Some(vec![raw(1, "digest", id)]), &[]).is_ok(),
                "{id}"
            );
        }
        for id in ["", ":", "nocolon", "user:", "a:b:c"] {
            assert!(
                checked(Some(vec![raw(1, "digest", id)]), &[]).is_err(),
                "{id}"
            );
        }
    }

    #[test]
    fn null_is_not_empty() {
        assert_eq!(checked(None, &[]), Err(ErrorCode::InvalidAcl));
        assert_eq!(checked(Some(vec![]), &[]), Err(ErrorCode::InvalidAcl));
        let null_id = |scheme: &str| {
            checked(
                Some(vec![RawAcl {
                    perms: 1,
                    scheme: Some(scheme.into()),
                    id: None,
                }]),
                &[],
            )
        };
        assert_eq!(null_id("digest"), Err(ErrorCode::MarshallingError));
        assert_eq!(null_id("mystery"), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn auth_becomes_the_digest_ids_of_the_connection() {
        let ids = [
            Id::new("ip", "127.0.0.1"),
            Id::new("digest", "a:b"),
            Id::new("super", ""),
        ];
        let list = checked(Some(vec![raw(5, "auth", "")]), &ids).unwrap();
        assert_eq!(
            list,
            [Acl {
                perms: 5,
                id: Id::new("digest", "a:b")
            }]
        );
        assert_eq!(
            checked(Some(vec![raw(5, "auth", "")]), &ids[..1]),
            Err(ErrorCode::InvalidAcl)
        );
    }

    #[test]
    fn duplicates_go_and_the_first_stays() {
        let list = checked(
            Some(vec![
                raw(1, "world", "anyone"),
                raw(1, "world", "anyone"),
                raw(2, "world", "anyone"),
            ]),
            &[],
        );
        assert_eq!(
            list.unwrap()
                .iter()
                .map(|acl| acl.perms)
                .collect::<Vec<_>>(),
            [1, 2]
        );
    }

    #[test]
    fn what_auth_becomes_may_be_only_so_much() {
        let ids: Vec<_> = (0..10)
            .map(|n| Id::new("digest", format!("{n}:x")))
            .collect();
        let auths = |perms: std::ops::Range<i32>| {
            let list = perms.map(|perms| raw(perms, "auth", "")).collect();
            resolve(Some(list), &ids, Schemes::default(), &mut 1000)
        };
        let entry_bytes = 4 + 4 + "digest".len() + 4 + "0:x".len();
        let most = i32::try_from(1000 / (10 * entry_bytes)).unwrap();
        assert_eq!(auths(0..most).unwrap().len(), 10 * most as usize);
        assert_eq!(auths(0..most + 1), Err(ErrorCode::InvalidAcl));
        // Duplicates do not count.
        let list = vec![raw(1, "auth", ""); 1000];
        assert_eq!(
            resolve(Some(list), &ids, Schemes::default(), &mut 1000)
                .unwrap()
                .len(),
            10
        );
    }

    #[test]
    fn networks_match_by_their_bits() {
        let allowed = |network: &str, address: &str| {
            let acl = [Acl {
                perms: READ,
                id: Id::new("ip", network),
            }];
            allows(&acl, READ, &[Id::new("ip", address)])
        };
        assert!(allowed("10.1.2.3", "10.1.2.3"));
        assert!(!allowed("10.1.2.3", "10.1.2.4"));
        assert!(allowed("10.1.0.0/16", "10.1.2.4"));
        assert!(!allowed("10.1.0.0/16", "10.2.2.4"));
        assert!(allowed("0.0.0.0/0", "1.2.3.4"));
        for invalid in [
            "10.1.2",
            "10.1.2.256",
            "10.1.2.3/",
            "10.1.2.3/33",
            "::1",
            "10.1.2.3.4",
        ] {
            assert!(
                checked(Some(vec![raw(1, "ip", invalid)]), &[]).is_err(),
                "{invalid}"
            );
        }
    }

    #[test]
    fn a_digest_user_comes_before_the_loopback_address() {
        assert_eq!(java_bucket(&Id::new("ip", "127.0.0.1")), 12);
    }
}
