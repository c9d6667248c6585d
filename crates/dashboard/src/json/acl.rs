//! Access lists as JSON.

use bellwether::zk::{Acl, acl};
use serde_json::{Value, json};

/// Permissions and their letters in `zkCli.sh`.
const RIGHTS: [(i32, char); 5] = [
    (acl::CREATE, 'c'),
    (acl::DELETE, 'd'),
    (acl::READ, 'r'),
    (acl::WRITE, 'w'),
    (acl::ADMIN, 'a'),
];

/// An access list.
#[must_use]
pub fn acl(list: &[Acl]) -> Value {
    let entry =
        |acl: &Acl| json!({"scheme": acl.id.scheme, "id": acl.id.id, "rights": rights(acl)});
    list.iter().map(entry).collect()
}

/// Permissions of an entry, as letters.
#[must_use]
pub fn rights(acl: &Acl) -> String {
    let has = RIGHTS.iter().filter(|(right, _)| acl.perms & right != 0);
    has.map(|(_, letter)| letter).collect()
}
