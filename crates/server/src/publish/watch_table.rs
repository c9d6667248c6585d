//! Table of watches by path and by connection.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::client::Peer;
use crate::stats::WatchUse;
use crate::tree::path;

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
    /// Number of recursive watches by the length of their path. `fire` looks only at ancestors of these lengths: a deep path has many.
    recursive: BTreeMap<usize, usize>,
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
            *self.recursive.entry(path.len()).or_default() += 1;
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
            self.forget_recursive(path);
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
                self.forget_recursive(path);
            }
        }
        some.len() == count
    }

    /// Returns all watchers of a change at `path`, each once, and removes one-shot watches.
    ///
    /// `upwards` includes recursive watches on ancestors.
    pub(super) fn fire(&mut self, path: &str, upwards: bool) -> Vec<Arc<Peer>> {
        let mut found = Vec::new();
        if let Some(watchers) = self.by_path.get_mut(path) {
            let mut done = Vec::new();
            for (peer, modes) in watchers.values_mut() {
                found.push(peer.clone());
                modes.one_shot = false;
                if modes.is_empty() {
                    done.push(found.len() - 1);
                }
            }
            watchers.retain(|_, (_, modes)| !modes.is_empty());
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            for index in done {
                self.forget_path(&found[index], path);
            }
        }
        if upwards && !self.recursive.is_empty() {
            let here = found.len();
            let lengths = self.recursive.range(..path.len());
            let above = lengths.filter_map(|(length, _)| path::ancestor(path, *length));
            let watching = above.filter_map(|above| self.by_path.get(above));
            let watching = watching.flat_map(HashMap::values);
            let recursive = watching.filter(|(_, modes)| modes.recursive);
            found.extend(recursive.map(|(peer, _)| peer.clone()));
            // A connection may watch several ancestors. Most changes have one watcher, which needs no set.
            if found.len() > 1 && found.len() > here {
                let mut told = HashSet::with_capacity(found.len());
                found.retain(|peer| told.insert(peer.number));
            }
        }
        found
    }

    fn forget_recursive(&mut self, path: &str) {
        if let Some(count) = self.recursive.get_mut(&path.len()) {
            *count -= 1;
            if *count == 0 {
                self.recursive.remove(&path.len());
            }
        }
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
