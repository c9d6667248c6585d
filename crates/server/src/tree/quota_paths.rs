//! The paths that have a quota.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use imbl::HashMap;

use super::path_hashes::{path_hash, path_hashes};

/// The paths that have a quota, found from the paths below them. Versions share structure.
#[derive(Debug, Clone, Default)]
pub(super) struct QuotaPaths<S = RandomState> {
    /// By their hash: paths with the same hash are in one list.
    by_hash: HashMap<u64, Vec<Arc<str>>>,
    keys: S,
}

impl<S: BuildHasher> QuotaPaths<S> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    pub(super) fn insert(&mut self, path: Arc<str>) {
        let same_hash = self
            .by_hash
            .entry(path_hash(&self.keys, &path))
            .or_default();
        if !same_hash.contains(&path) {
            same_hash.push(path);
        }
    }

    pub(super) fn remove(&mut self, path: &str) {
        let hash = path_hash(&self.keys, path);
        if let Some(same_hash) = self.by_hash.get_mut(&hash) {
            same_hash.retain(|one| **one != *path);
            if same_hash.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// The deepest path with a quota at or above `path`.
    pub(super) fn over(&self, path: &str) -> Option<&Arc<str>> {
        let found = |(above, hash): (&str, u64)| {
            let mut same_hash = self.by_hash.get(&hash)?.iter();
            same_hash.find(|one| ***one == *above)
        };
        path_hashes(&self.keys, path).filter_map(found).last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::path_hashes::counting::Counting;

    #[test]
    fn the_deepest_path_at_or_above_is_found() {
        let mut quotas = QuotaPaths::<RandomState>::default();
        for path in ["/a", "/a/b/c", "/a/b/c", "/ab", ""] {
            quotas.insert(path.into());
        }
        let over = |quotas: &QuotaPaths, path| quotas.over(path).map(|path| path.to_string());
        for (path, expected) in [
            ("/a", Some("/a")),
            ("/a/b", Some("/a")),
            ("/a/b/c", Some("/a/b/c")),
            ("/a/b/c/d", Some("/a/b/c")),
            ("/abc", None),
            ("/", None),
        ] {
            assert_eq!(over(&quotas, path).as_deref(), expected, "{path}");
        }
        quotas.remove("/a/b/c");
        assert_eq!(over(&quotas, "/a/b/c/d").as_deref(), Some("/a"));
        for path in ["/a", "/ab", ""] {
            quotas.remove(path);
        }
        assert!(quotas.is_empty());
    }

    #[test]
    fn a_deep_path_is_hashed_once() {
        const LEVELS: usize = 500;
        let mut quotas = QuotaPaths::<Counting>::default();
        let deep = "/a".repeat(LEVELS);
        for levels in 1..LEVELS {
            quotas.insert(format!("{}/b", &deep[..2 * levels]).into());
        }
        let before = quotas.keys.bytes();
        assert_eq!(quotas.over(&deep), None);
        assert_eq!(quotas.keys.bytes() - before, deep.len());
    }
}
