//! The copy itself, and its listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_client as zk;
use tokio::sync::broadcast;

use crate::error::StateError;
use crate::node::Version;
use crate::session::client::SessionId;

/// How many changes a listener may be behind before it gets [`CacheEvent::Missed`].
const CHANGES_MAX: usize = 4096;

/// All nodes of a subtree at one moment, by their paths.
pub type Snapshot = BTreeMap<Arc<str>, Arc<CachedNode>>;

/// A node as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedNode {
    /// The data.
    pub data: Vec<u8>,
    /// How often the data was set.
    pub version: Version,
    /// The zxid that created the node.
    pub czxid: i64,
    /// The zxid that last set the data.
    pub mzxid: i64,
    /// The session that the node ends with; `None` if it stays.
    pub ephemeral_owner: Option<SessionId>,
}

impl CachedNode {
    pub(super) fn new(data: Vec<u8>, stat: &zk::Stat) -> Self {
        Self {
            data,
            version: stat.version.into(),
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            ephemeral_owner: SessionId::of_owner(stat.ephemeral_owner),
        }
    }
}

/// What happened to a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "path and node are what they are called")]
pub enum CacheEvent {
    /// A node is new, or has other data.
    Changed {
        path: Arc<str>,
        node: Arc<CachedNode>,
    },
    /// A node is gone.
    Deleted { path: Arc<str> },
    /// The session has ended, and a new session keeps the copy. The changes since then follow.
    Renewed,
    /// The listener was too slow, and events were dropped. Take a snapshot.
    Missed,
}

/// The nodes, by their paths as the user knows them.
#[derive(Debug)]
pub(super) struct Tree {
    root: String,
    nodes: Mutex<Snapshot>,
    telling: Mutex<Telling>,
}

/// Whether listeners can still get events.
#[derive(Debug)]
enum Telling {
    Goes(broadcast::Sender<CacheEvent>),
    /// The copy is no longer updated. The reason, until a caller has taken it.
    Ended(Option<StateError>),
}

impl Tree {
    pub(super) fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            nodes: Mutex::default(),
            telling: Mutex::new(Telling::Goes(broadcast::Sender::new(CHANGES_MAX))),
        }
    }

    /// The path of a node from its path below the root.
    pub(super) fn path(&self, below: &str) -> String {
        format!("{}{below}", self.root)
    }

    pub(super) fn get(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.nodes().get(path).cloned()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.nodes().clone()
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<CacheEvent> {
        match &*self.telling() {
            Telling::Goes(events) => events.subscribe(),
            // Closed, since its sender is gone.
            Telling::Ended(_) => broadcast::Sender::new(1).subscribe(),
        }
    }

    /// The copy is no longer updated: listeners see the end of the stream after all earlier events.
    pub(super) fn end(&self, why: StateError) {
        *self.telling() = Telling::Ended(Some(why));
    }

    /// Why the copy is no longer updated. It is returned once.
    pub(super) fn take_end(&self) -> Option<StateError> {
        match &mut *self.telling() {
            Telling::Goes(_) => None,
            Telling::Ended(why) => why.take(),
        }
    }

    pub(super) fn snapshot_and_subscribe(&self) -> (Snapshot, broadcast::Receiver<CacheEvent>) {
        // Events are sent under the same lock as the change.
        let nodes = self.nodes();
        (nodes.clone(), self.subscribe())
    }

    /// Stores the data of a node, unless newer data is known.
    pub(super) fn set(&self, path: &str, node: CachedNode) {
        let mut nodes = self.nodes();
        if nodes
            .get(path)
            .is_some_and(|known| known.mzxid >= node.mzxid)
        {
            return;
        }
        let (path, node) = (Arc::<str>::from(path), Arc::new(node));
        nodes.insert(path.clone(), node.clone());
        self.tell(CacheEvent::Changed { path, node });
    }

    /// Removes a node and everything below it, the lowest first.
    pub(super) fn remove(&self, path: &str) {
        let mut nodes = self.nodes();
        let below: Vec<_> = range_below(&nodes, path)
            .map(|(path, _)| path.clone())
            .collect();
        for path in below.into_iter().rev() {
            nodes.remove(&path);
            self.tell(CacheEvent::Deleted { path });
        }
        if let Some((path, _)) = nodes.remove_entry(path) {
            self.tell(CacheEvent::Deleted { path });
        }
    }

    /// The names of the children of a node, as far as they are known.
    pub(super) fn children(&self, path: &str) -> BTreeSet<String> {
        let nodes = self.nodes();
        let below = range_below(&nodes, path).map(|(below, _)| &below[path.len() + 1..]);
        below
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn tell(&self, event: CacheEvent) {
        if let Telling::Goes(events) = &*self.telling() {
            // There may be no listener.
            let _ = events.send(event);
        }
    }

    fn telling(&self) -> MutexGuard<'_, Telling> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, Snapshot> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn range_below<'a>(
    nodes: &'a Snapshot,
    path: &str,
) -> impl DoubleEndedIterator<Item = (&'a Arc<str>, &'a Arc<CachedNode>)> {
    // A zero is what follows a slash.
    let (first, end) = (format!("{path}/"), format!("{path}0"));
    nodes.range::<str, _>((Bound::Included(&*first), Bound::Excluded(&*end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(mzxid: i64) -> CachedNode {
        CachedNode {
            data: mzxid.to_string().into_bytes(),
            version: 0.into(),
            czxid: 1,
            mzxid,
            ephemeral_owner: None,
        }
    }

    #[test]
    fn node_never_goes_back() {
        let tree = Tree::new("/a");
        tree.set("/a", node(5));
        let mut events = tree.subscribe();
        tree.set("/a", node(4));
        tree.set("/a", node(5));
        assert_eq!(tree.get("/a").unwrap().mzxid, 5);
        assert!(events.try_recv().is_err());
        tree.set("/a", node(6));
        assert!(matches!(events.try_recv(), Ok(CacheEvent::Changed { .. })));
    }

    #[test]
    fn removal_takes_what_is_below_and_nothing_beside() {
        let tree = Tree::new("/a");
        for path in ["/a", "/a/b", "/a/b/c", "/a/b-d", "/a/b0", "/a/bc"] {
            tree.set(path, node(1));
        }
        let children: Vec<_> = tree.children("/a").into_iter().collect();
        assert_eq!(children, ["b", "b-d", "b0", "bc"]);
        let mut events = tree.subscribe();
        tree.remove("/a/b");
        let mut gone = Vec::new();
        while let Ok(CacheEvent::Deleted { path }) = events.try_recv() {
            gone.push(path);
        }
        assert_eq!(gone, [Arc::from("/a/b/c"), Arc::from("/a/b")]);
        let left: Vec<_> = tree.snapshot().into_keys().collect();
        assert_eq!(left, ["/a", "/a/b-d", "/a/b0", "/a/bc"].map(Arc::from));
    }
}
