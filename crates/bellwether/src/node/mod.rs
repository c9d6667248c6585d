//! The identity and the parts of nodes: checked paths, operation ids, access lists, versions, times and sizes.

pub(crate) mod data;

pub use bellwether_client::PathError;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bellwether_client::{check_path as check, environment};
use serde::{Deserialize, Serialize};

use crate::node::data::Who;

/// The absolute path of a node below the root, in its normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePath(String);

impl NodePath {
    /// Checks what Apache's `PathUtils.validatePath` checks, so that a bad path is refused before anything is sent. The root is refused too.
    pub(crate) fn parse(path: &str) -> Result<Self, PathError> {
        match path {
            "/" => Err(PathError::Root),
            path => check(path).map(|()| Self(path.to_owned())),
        }
    }

    /// Does the same as [`parse`](Self::parse), for a directory as the prefix of its children: nothing for the root.
    pub(crate) fn parse_prefix(path: &str) -> Result<Self, PathError> {
        match Self::parse(path) {
            Err(PathError::Root) => Ok(Self(String::new())),
            parsed => parsed,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns this path with `below` appended, such as a path below the chroot.
    pub(crate) fn join(&self, below: &Self) -> Self {
        Self(format!("{}{}", self.0, below.0))
    }

    /// A directory below, by a name that is known to be valid.
    pub(crate) fn below(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0))
    }

    /// The path of a child.
    pub(crate) fn child(&self, name: impl fmt::Display) -> String {
        format!("{}/{name}", self.0)
    }

    /// The path of a child that is a directory itself.
    pub(crate) fn descend(&self, name: impl fmt::Display) -> Self {
        Self(self.child(name))
    }

    /// The directory that it is in; `None` right below the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        match self.0.rsplit_once('/') {
            Some(("", _)) | None => None,
            Some((parent, _)) => Some(Self(parent.to_owned())),
        }
    }

    /// The directory that it is in, as the prefix of its children: nothing for the root.
    pub(crate) fn directory(&self) -> Self {
        self.parent().unwrap_or(Self(String::new()))
    }

    /// The paths from the top down to this node: `/a`, `/a/b`, `/a/b/c`.
    pub(crate) fn lineage(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').skip(1).map(|(end, _)| end);
        ends.chain([self.0.len()]).map(|end| &self.0[..end])
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Tells one acquisition from all others. The session alone would not: two tasks may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationId(u64);

impl OperationId {
    /// An id that no other acquisition has, in this process or another.
    pub(crate) fn new() -> Self {
        Self(environment::random())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The data of a node that belongs to one acquisition: the identity of its creator, and the id of the acquisition. Another client's node
/// may have had the same path before.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClaimData {
    #[serde(flatten)]
    who: Who,
    acquisition: String,
}

impl ClaimData {
    pub(crate) fn new(who: Who, acquisition: &str) -> Self {
        Self {
            who,
            acquisition: acquisition.to_owned(),
        }
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// Returns whether the data of a node is that of this acquisition.
    pub(crate) fn is_of(data: &[u8], acquisition: &str) -> bool {
        serde_json::from_slice::<Self>(data).is_ok_and(|claim| claim.acquisition == acquisition)
    }

    /// Returns whether the data of a node is that of any acquisition.
    pub(crate) fn is_any(data: &[u8]) -> bool {
        serde_json::from_slice::<Self>(data).is_ok()
    }
}

/// The access control list of a recipe's nodes and of its own directory. Directories above it are created open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access(Option<Arc<[zk::Acl]>>);

impl Access {
    pub(crate) fn new(acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self(Some(acl.into().into()))
    }

    /// All clients, unless set.
    pub(crate) fn acl(&self) -> Vec<zk::Acl> {
        match &self.0 {
            Some(acl) => acl.to_vec(),
            None => vec![zk::Acl::open()],
        }
    }

    /// Returns the size of the list in a request.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.acl().iter().map(zk::Acl::encoded_bytes).sum::<usize>();
        4 + entries
    }
}

/// The version of a node's data. The servers change it with every write, so that a conditional write can tell one state from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(i32);

impl Version {
    /// The number that servers show for it.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The version after one more write. The servers count past the end of the range in the same way.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl From<i32> for Version {
    /// The version that servers show as this number.
    fn from(number: i32) -> Self {
        Self(number)
    }
}

/// The time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    zk::environment::epoch_ms()
}

/// Returns the time when a node was created, by the clock of the servers.
pub(crate) fn created_at(stat: &zk::Stat) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default())
}

/// Servers close the connection on a frame of more than a mebibyte, and would do so each time it is sent again.
pub(crate) const REQUEST_BYTES_MAX: usize = 1_000_000;

/// The size of one write in a request besides path, data and access list: headers, lengths, flags or a version.
pub(crate) const WRITE_OVERHEAD_BYTES: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_paths_are_refused() {
        for (path, error) in [
            ("", PathError::NotAbsolute),
            ("a", PathError::NotAbsolute),
            ("/", PathError::Root),
            ("/a//b", PathError::EmptyName),
            ("/a/", PathError::EmptyName),
            ("/a/../b", PathError::Relative),
            ("/.", PathError::Relative),
            ("/a\u{1}", PathError::Character('\u{1}')),
        ] {
            assert_eq!(NodePath::parse(path), Err(error), "{path:?}");
        }
    }

    #[test]
    fn lineage_goes_from_the_top_down() {
        let path = NodePath::parse("/a/bé/c").unwrap();
        assert_eq!(
            path.lineage().collect::<Vec<_>>(),
            ["/a", "/a/bé", "/a/bé/c"]
        );
        assert_eq!(
            NodePath::parse("/a").unwrap().lineage().collect::<Vec<_>>(),
            ["/a"]
        );
    }
}
