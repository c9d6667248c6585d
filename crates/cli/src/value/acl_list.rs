//! Access lists, as text and as JSON.

use bellwether::zk::acl::{ADMIN, CREATE, DELETE, READ, WRITE};
use bellwether::zk::{Acl, Id};
use serde::{Deserialize, Serialize};

/// Rights and their letters, as in `zkCli.sh`.
const RIGHTS: [(i32, char); 5] = [
    (CREATE, 'c'),
    (DELETE, 'd'),
    (READ, 'r'),
    (WRITE, 'w'),
    (ADMIN, 'a'),
];

/// An access list, in the order of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AclList(pub(crate) Vec<Acl>);

impl AclList {
    /// All rights for every client.
    pub(crate) fn open() -> Self {
        Self(vec![Acl::open()])
    }

    /// Whether the server replaced digests by an x, as it does for clients without the right to administrate
    /// (`FinalRequestProcessor.handleGetACLRequest`). Such a list cannot be set again.
    pub(crate) fn is_masked(&self) -> bool {
        self.0
            .iter()
            .any(|acl| acl.id.scheme == "digest" && acl.id.id.ends_with(":x"))
    }
}

/// Parses `SCHEME:ID:RIGHTS,…`, as in `zkCli.sh`.
pub(crate) fn parse(text: &str) -> Result<AclList, String> {
    let mut entries: Vec<String> = Vec::new();
    for part in text.split(',') {
        match entries.last_mut() {
            // Subjects of certificates contain commas: x509:CN=alice,O=ops:cdrwa.
            Some(entry) if entry.starts_with("x509:") && !has_rights(entry) => {
                entry.push(',');
                entry.push_str(part);
            }
            _ => entries.push(part.to_owned()),
        }
    }
    let entries = entries.iter().map(|entry| parse_entry(entry));
    entries.collect::<Result<_, _>>().map(AclList)
}

/// Whether the text ends in rights.
fn has_rights(entry: &str) -> bool {
    let rights = entry.rsplit_once(':').map_or("", |(_, rights)| rights);
    let is_right = |letter| RIGHTS.iter().any(|right| right.1 == letter);
    !rights.is_empty() && rights.chars().all(is_right)
}

/// Ids may contain colons, as those of digest do.
fn parse_entry(text: &str) -> Result<Acl, String> {
    let parts = text.split_once(':').and_then(|(scheme, rest)| {
        rest.rsplit_once(':')
            .map(|(id, rights)| (scheme, id, rights))
    });
    match parts {
        Some((scheme, id, rights)) if !scheme.is_empty() && !rights.is_empty() => {
            entry(scheme, id, rights)
        }
        _ => Err(format!(
            "{text:?} is not of the form SCHEME:ID:RIGHTS, such as world:anyone:cdrwa"
        )),
    }
}

fn entry(scheme: &str, id: &str, rights: &str) -> Result<Acl, String> {
    let mut perms = 0;
    for letter in rights.chars() {
        let right = RIGHTS.iter().find(|right| right.1 == letter);
        let (right, _) =
            right.ok_or_else(|| format!("{letter:?} is not one of the rights c, d, r, w, a"))?;
        perms |= *right;
    }
    Ok(Acl::new(perms, Id::new(scheme, id)))
}

/// The text that [`parse`] reads, on one line: ids may contain any character.
pub(crate) fn text(list: &[Acl]) -> String {
    let entries: Vec<_> = list
        .iter()
        .map(|acl| format!("{}:{}:{}", acl.id.scheme, acl.id.id, rights(acl)))
        .collect();
    let text = entries.join(",");
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

fn rights(acl: &Acl) -> String {
    let has = RIGHTS.iter().filter(|(right, _)| acl.perms & right != 0);
    has.map(|(_, letter)| letter).collect()
}

/// One entry as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AclEntry {
    scheme: String,
    id: String,
    rights: String,
}

impl Serialize for AclList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|acl| AclEntry {
            scheme: acl.id.scheme.clone(),
            id: acl.id.id.clone(),
            rights: rights(acl),
        }))
    }
}

impl<'de> Deserialize<'de> for AclList {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::<AclEntry>::deserialize(deserializer)?;
        if entries.is_empty() {
            return Err(serde::de::Error::custom("an access list has no entries"));
        }
        let entries = entries
            .iter()
            .map(|one| entry(&one.scheme, &one.id, &one.rights));
        let list = entries.collect::<Result<_, _>>();
        list.map(AclList).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_alike() {
        for list in [
            "world:anyone:cdrwa",
            "digest:me:Ab+/c=:rw,ip:127.0.0.0/8:r",
            "auth::cdrwa",
            "x509:CN=alice,OU=ops,O=flock:cdrwa,world:anyone:r,x509:CN=bob:r",
        ] {
            assert_eq!(text(&parse(list).unwrap().0), list);
        }
        assert_eq!(
            text(&parse("world:anyone:awrdc").unwrap().0),
            "world:anyone:cdrwa"
        );
    }

    #[test]
    fn anything_else_is_refused() {
        for list in [
            "",
            "world",
            "world:anyone",
            "world:anyone:",
            "world:anyone:x",
            ":anyone:r",
            "world:anyone:r,",
            "x509:CN=alice,O=flock",
        ] {
            assert!(parse(list).is_err(), "{list}");
        }
    }

    #[test]
    fn digest_that_the_server_hides_is_known() {
        assert!(
            parse("world:anyone:r,digest:me:x:cdrwa")
                .unwrap()
                .is_masked()
        );
        assert!(!parse("digest:x:Abx=:r,ip:::x:r").unwrap().is_masked());
    }

    #[test]
    fn json_says_the_same() {
        let list = parse("digest:me:Ab=:rw,world:anyone:r").unwrap();
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!(
            json[0],
            serde_json::json!({"scheme": "digest", "id": "me:Ab=", "rights": "rw"})
        );
        assert_eq!(serde_json::from_value::<AclList>(json).unwrap(), list);
        assert!(serde_json::from_str::<AclList>("[]").is_err());
    }
}
