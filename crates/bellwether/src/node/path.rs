//! Paths of nodes, checked at the edge.

use std::fmt;

pub use bellwether_client::PathError;
use bellwether_client::check_path as check;

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

    /// As [`parse`](Self::parse), for a directory as the prefix of its children: nothing for the root.
    pub(crate) fn parse_prefix(path: &str) -> Result<Self, PathError> {
        match Self::parse(path) {
            Err(PathError::Root) => Ok(Self(String::new())),
            parsed => parsed,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// This path with `below` appended, such as a path below the chroot.
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
