//! Table of watches by path and by connection.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::recursive::RecursiveWatches;
use crate::client::Peer;
use crate::stats::WatchUse;

/// Duration and scope of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// Until it fires.
    OneShot,
    /// Until it is removed.
    Persistent,
    /// Until it is removed, and for all nodes below as well.
    Recursive,
}

/// Modes in which one connection watches one path. Modes are independent of each other (Apache 3.9; before, the last one replaced the
/// others).
#[derive(Debug, Clone, Copy, Default)]
struct Modes {
    one_shot: bool,
    persistent: bool,
    recursive: bool,
}

impl Modes {
    fn has(&mut self, mode: WatchMode) -> &mut bool {
        match mode {
            WatchMode::OneShot => &mut self.one_shot,
            WatchMode::Persistent => &mut self.persistent,
            WatchMode::Recursive => &mut self.recursive,
        }
    }

    fn is_empty(self) -> bool {
        !(self.one_shot || self.persistent || self.recursive)
    }
}

/// Watchers of one path, by connection number.
type Watchers = HashMap<u64, (Arc<Peer>, Modes)>;

/// Watches of one kind: on data and existence, or on children.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    by_path: HashMap<Arc<str>, Watchers>,
    by_peer: HashMap<u64, HashSet<Arc<str>>>,
    /// Those watches of `by_path` that are recursive.
    recursive: RecursiveWatches,
    /// Number of pairs of connection and path, and the bytes of their paths.
    used: WatchUse,
}

impl WatchTable {
    /// Adds a watch; no effect if it is already there.
    pub(super) fn arm(&mut self, path: &str, peer: &Arc<Peer>, mode: WatchMode) {
        let key = match self.by_path.get_key_value(path) {
            Some((key, _)) => key.clone(),
            None => Arc::from(path),
        };
        let watchers = self.by_path.entry(key.clone()).or_default();
        let (_, modes) = watchers
            .entry(peer.number)
            .or_insert_with(|| (peer.clone(), Modes::default()));
        let armed = modes.has(mode);
        if mode == WatchMode::Recursive && !*armed {
            self.recursive.add(&key, peer);
        }
        *armed = true;
        if self.by_peer.entry(peer.number).or_default().insert(key) {
            self.used.watches += 1;
            self.used.bytes += path.len();
            peer.watches.add(path);
        }
    }

    /// Whether `peer` watches `path` in any mode.
    pub(super) fn has(&self, path: &str, peer: &Peer) -> bool {
        let watchers = self.by_path.get(path);
        watchers.is_some_and(|watchers| watchers.contains_key(&peer.number))
    }

    /// Whether `peer` watches `path` in `mode`.
    pub(super) fn contains(&self, path: &str, peer: &Peer, mode: WatchMode) -> bool {
        let watchers = self.by_path.get(path);
        let modes = watchers.and_then(|watchers| watchers.get(&peer.number));
        modes.is_some_and(|(_, modes)| *modes.clone().has(mode))
    }

    /// Removes a watch; false if there was none.
    pub(super) fn disarm(&mut self, path: &str, peer: &Peer, mode: WatchMode) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let Some((_, modes)) = watchers.get_mut(&peer.number) else {
            return false;
        };
        if !std::mem::take(modes.has(mode)) {
            return false;
        }
        if modes.is_empty() {
            watchers.remove(&peer.number);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            self.forget_path(peer, path);
        }
        if mode == WatchMode::Recursive {
            self.recursive.remove(path, peer);
        }
        true
    }

    /// Removes at most `count` watches of a connection. Returns whether it may have more.
    pub(super) fn remove_some(&mut self, peer: &Peer, count: usize) -> bool {
        let Some(paths) = self.by_peer.get_mut(&peer.number) else {
            return false;
        };
        let some: Vec<_> = paths.extract_if(|_| true).take(count).collect();
        if paths.is_empty() {
            self.by_peer.remove(&peer.number);
        }
        for path in &some {
            self.forgotten(peer, path);
            let Some(watchers) = self.by_path.get_mut(path) else {
                continue;
            };
            let removed = watchers.remove(&peer.number);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            if removed.is_some_and(|(_, modes)| modes.recursive) {
                self.recursive.remove(path, peer);
            }
        }
        some.len() == count
    }

    /// Tells all watchers of `path`, each once, and removes one-shot watches. Returns whether there were any of these.
    pub(super) fn fire(&mut self, path: &str, mut tell: impl FnMut(&Arc<Peer>)) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let mut has_removed = false;
        let mut done = Vec::new();
        watchers.retain(|_, (peer, modes)| {
            tell(peer);
            has_removed |= std::mem::take(&mut modes.one_shot);
            if modes.is_empty() {
                done.push(peer.clone());
            }
            !modes.is_empty()
        });
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        for peer in done {
            self.forget_path(&peer, path);
        }
        has_removed
    }

    /// Whether there are no watches.
    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Tells all recursive watchers of ancestors of `path`, one that watches several of them more than once.
    pub(super) fn fire_above(&self, path: &str, tell: impl FnMut(&Arc<Peer>)) {
        self.recursive.above(path, tell);
    }

    fn forget_path(&mut self, peer: &Peer, path: &str) {
        let Some(paths) = self.by_peer.get_mut(&peer.number) else {
            return;
        };
        let is_gone = paths.remove(path);
        if paths.is_empty() {
            self.by_peer.remove(&peer.number);
        }
        if is_gone {
            self.forgotten(peer, path);
        }
    }

    fn forgotten(&mut self, peer: &Peer, path: &str) {
        self.used.watches -= 1;
        self.used.bytes -= path.len();
        peer.watches.remove(path);
    }

    /// Number of pairs of connection and path, and the bytes of the paths.
    pub(super) fn used(&self) -> WatchUse {
        self.used
    }

    /// Watched paths of each connection, by its number.
    pub(super) fn by_peer(&self) -> impl Iterator<Item = (u64, &HashSet<Arc<str>>)> {
        self.by_peer.iter().map(|(number, paths)| (*number, paths))
    }

    /// Number of watched paths.
    pub(super) fn path_count(&self) -> usize {
        self.by_path.len()
    }
}
