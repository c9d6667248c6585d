//! Recursive watches, found from the paths below them.
//!
//! A path may have thousands of levels, each of them watched. One pass hashes it, and yields the hash of each ancestor on the way.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::client::Peer;
use crate::tree::path::ROOT;
use crate::tree::path_hashes::{path_hash, path_hashes};

/// Recursive watches by path.
#[derive(Debug, Default)]
pub(super) struct RecursiveWatches<S = RandomState> {
    /// By the hash of their path: paths with the same hash are in one list.
    by_hash: HashMap<u64, Vec<Watched>>,
    keys: S,
    /// Number of watched paths by length: ancestors of other lengths are not looked up.
    lengths: BTreeMap<usize, usize>,
}

#[derive(Debug)]
struct Watched {
    path: Arc<str>,
    /// Its watchers by connection number.
    peers: HashMap<u64, Arc<Peer>>,
}

impl<S: BuildHasher> RecursiveWatches<S> {
    pub(super) fn add(&mut self, path: &Arc<str>, peer: &Arc<Peer>) {
        let same_hash = self.by_hash.entry(path_hash(&self.keys, path)).or_default();
        let watched = same_hash.iter().position(|one| one.path == *path);
        let watched = watched.unwrap_or_else(|| {
            *self.lengths.entry(path.len()).or_default() += 1;
            same_hash.push(Watched {
                path: path.clone(),
                peers: HashMap::new(),
            });
            same_hash.len() - 1
        });
        same_hash[watched].peers.insert(peer.number, peer.clone());
    }

    pub(super) fn remove(&mut self, path: &str, peer: &Peer) {
        let hash = path_hash(&self.keys, path);
        let Some(same_hash) = self.by_hash.get_mut(&hash) else {
            return;
        };
        for watched in same_hash.iter_mut().filter(|one| *one.path == *path) {
            watched.peers.remove(&peer.number);
        }
        let before = same_hash.len();
        same_hash.retain(|one| !one.peers.is_empty());
        let is_unwatched = same_hash.len() < before;
        if same_hash.is_empty() {
            self.by_hash.remove(&hash);
        }
        if is_unwatched && let Some(count) = self.lengths.get_mut(&path.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&path.len());
            }
        }
    }

    /// Visits the watchers of all ancestors of a valid path, those of several ancestors more than once.
    pub(super) fn above(&self, path: &str, mut visit: impl FnMut(&Arc<Peer>)) {
        let longest = self.lengths.range(..path.len()).next_back();
        let longest = longest.map_or(0, |(length, _)| *length);
        if longest == 0 {
            return;
        }
        let mut visit_at = |above: &str, hash: u64| {
            if let Some(watched) = self.watched(above, hash) {
                watched.peers.values().for_each(&mut visit);
            }
        };
        if self.lengths.contains_key(&ROOT.len()) {
            visit_at(ROOT, path_hash(&self.keys, ROOT));
        }
        let above = path_hashes(&self.keys, path);
        for (above, hash) in above.take_while(|(above, _)| above.len() <= longest) {
            if self.lengths.contains_key(&above.len()) {
                visit_at(above, hash);
            }
        }
    }

    fn watched(&self, path: &str, hash: u64) -> Option<&Watched> {
        let mut same_hash = self.by_hash.get(&hash)?.iter();
        same_hash.find(|one| *one.path == *path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::core::Core;
    use crate::tree::path_hashes::counting::Counting;

    #[test]
    fn a_path_is_hashed_once_however_many_of_its_ancestors_are_watched() {
        const LEVELS: usize = 500;
        let peer = Core::new().connect().peer;
        let mut watches = RecursiveWatches::<Counting>::default();
        let deep = "/a".repeat(LEVELS);
        for levels in 1..LEVELS {
            watches.add(&deep[..2 * levels].into(), &peer);
        }
        watches.add(&ROOT.into(), &peer);
        let before = watches.keys.bytes();
        let mut found = 0;
        watches.above(&deep, |_| found += 1);
        assert_eq!(found, LEVELS);
        let hashed = watches.keys.bytes() - before;
        assert!(hashed <= ROOT.len() + deep.len(), "{hashed} bytes hashed");
    }

    #[test]
    fn only_watchers_of_ancestors_are_found() {
        let mut core = Core::new();
        let watched = [
            "/", "/a", "/a/bc", "/a/b", "/aa", "/é/ü", "", "a", "/a/", "//a",
        ];
        let peers = watched.map(|_| core.connect().peer);
        let mut watches = RecursiveWatches::<RandomState>::default();
        for (path, peer) in watched.iter().zip(&peers) {
            watches.add(&Arc::from(*path), peer);
        }
        let found = |watches: &RecursiveWatches, path| {
            let mut found = Vec::new();
            watches.above(path, |peer| {
                let place = peers.iter().position(|one| one.number == peer.number);
                found.push(watched[place.unwrap()]);
            });
            found
        };
        for (path, expected) in [
            ("/", &[][..]),
            ("/a", &["/"]),
            ("/a/bc", &["/", "/a"]),
            ("/a/bc/d", &["/", "/a", "/a/bc"]),
            ("/a/bcd/e", &["/", "/a"]),
            ("/é/ü/x", &["/", "/é/ü"]),
        ] {
            assert_eq!(found(&watches, path), expected, "{path}");
        }
        for (path, peer) in watched.iter().zip(&peers) {
            watches.remove(path, peer);
        }
        assert_eq!(found(&watches, "/a/bc/d"), [""; 0]);
        assert!(watches.by_hash.is_empty() && watches.lengths.is_empty());
    }
}
