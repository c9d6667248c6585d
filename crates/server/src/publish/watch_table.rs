//! Who watches which path.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::peer::Peer;
use crate::stats::WatchUse;
use crate::tree::path;

/// How long a watch lasts and how far it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// Until it fires.
    OneShot,
    /// Until it is removed.
    Persistent,
    /// Until it is removed, and for all nodes below as well.
    Recursive,
}

/// The modes in which one connection watches one path. A watch of one mode leaves those of the
/// others alone (Apache 3.9; before, the last one replaced them).
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

/// Those who watch one path, by the numbers of their connections.
type Watchers = HashMap<u64, (Arc<Peer>, Modes)>;

/// The watches of one sort: on data and existence, or on children.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    by_path: HashMap<Arc<str>, Watchers>,
    by_peer: HashMap<u64, HashSet<Arc<str>>>,
    /// How many there are that see below their path; without any, nobody looks upwards.
    recursive: usize,
    /// How many pairs of a connection and a path there are, and their bytes.
    used: WatchUse,
}

impl WatchTable {
    /// Adds a watch; one that is there already stays one.
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
            self.recursive += 1;
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

    /// Whether `peer` watches `path` in that mode.
    pub(super) fn contains(&self, path: &str, peer: &Peer, mode: WatchMode) -> bool {
        let watchers = self.by_path.get(path);
        let modes = watchers.and_then(|watchers| watchers.get(&peer.number));
        modes.is_some_and(|(_, modes)| *modes.clone().has(mode))
    }

    /// Takes a watch away; false if there was none.
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
        if mode == WatchMode::Recursive {
            self.recursive -= 1;
        }
        if modes.is_empty() {
            watchers.remove(&peer.number);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            self.forget_path(peer, path);
        }
        true
    }

    /// Takes all watches of a connection away.
    pub(super) fn remove_peer(&mut self, peer: &Peer) {
        for path in self.by_peer.remove(&peer.number).unwrap_or_default() {
            self.forgotten(peer, &path);
            let Some(watchers) = self.by_path.get_mut(&path) else {
                continue;
            };
            if let Some((_, modes)) = watchers.remove(&peer.number) {
                self.recursive -= usize::from(modes.recursive);
            }
            if watchers.is_empty() {
                self.by_path.remove(&path);
            }
        }
    }

    /// Everybody who is to hear of a change at `path`, each once. One-shot watches are gone then.
    ///
    /// `upwards` also finds those who watch a node above and all below it.
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
        if upwards && self.recursive > 0 {
            let mut told: HashSet<u64> = found.iter().map(|peer| peer.number).collect();
            for above in path::with_ancestors(path).skip(1) {
                for (peer, modes) in self
                    .by_path
                    .get(above)
                    .into_iter()
                    .flat_map(HashMap::values)
                {
                    if modes.recursive && told.insert(peer.number) {
                        found.push(peer.clone());
                    }
                }
            }
        }
        found
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

    /// How many pairs of a connection and a path there are, and the bytes of the paths.
    pub(super) fn used(&self) -> WatchUse {
        self.used
    }

    /// The watched paths of each connection, by its number.
    pub(super) fn by_peer(&self) -> impl Iterator<Item = (u64, &HashSet<Arc<str>>)> {
        self.by_peer.iter().map(|(number, paths)| (*number, paths))
    }

    /// How many paths are watched.
    pub(super) fn path_count(&self) -> usize {
        self.by_path.len()
    }
}
