//! One version of the tree: nodes and sessions.

use std::sync::Arc;

use imbl::{HashMap, OrdSet};

use super::below::{Below, signed};
use super::node::{Node, Owner};
use super::path::{self, ROOT};
use super::quota_paths::QuotaPaths;
use super::size::{Extras, acl_bytes};
use super::txn::AclList;
use super::{access, digest};

/// One version: all nodes and sessions after the transaction `last_zxid`.
///
/// Versions share structure (copy-on-write), so a clone is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: HashMap<Arc<str>, Arc<Node>>,
    ephemerals: HashMap<i64, Ephemerals>,
    sessions: HashMap<i64, i32>,
    containers: OrdSet<Arc<str>>,
    expiring: OrdSet<Arc<str>>,
    pub(super) quotas: QuotaPaths,
    last_zxid: i64,
    digest: u64,
    bytes: usize,
    path_bytes: usize,
    /// What [`Tree::size`] counts besides.
    pub(super) extras: Extras,
}

/// The ephemeral nodes of one session.
#[derive(Debug, Clone, Default)]
struct Ephemerals {
    paths: OrdSet<Arc<str>>,
    /// What the paths take in the transaction that ends the session.
    bytes: usize,
}

/// What a path takes in a list of paths.
pub(crate) fn listed_bytes(path: &str) -> usize {
    size_of::<i32>() + path.len()
}

impl Tree {
    /// A tree without even a root, to be filled from a snapshot.
    pub(crate) fn empty() -> Self {
        Self {
            nodes: HashMap::new(),
            ephemerals: HashMap::new(),
            sessions: HashMap::new(),
            containers: OrdSet::new(),
            expiring: OrdSet::new(),
            quotas: QuotaPaths::default(),
            last_zxid: 0,
            digest: 0,
            bytes: 0,
            path_bytes: 0,
            extras: Extras::default(),
        }
    }

    /// The initial tree of a new database.
    pub(crate) fn fresh() -> Self {
        let mut tree = Self::empty();
        let open = access::open();
        for (path, children, acl, aversion) in [
            ("/zookeeper/quota", &[][..], &open, 0),
            ("/zookeeper/config", &[], &access::world_readable(), -1),
            ("/zookeeper", &["config", "quota"], &open, 0),
            (ROOT, &["zookeeper"], &open, 0),
        ] {
            let node = Node {
                data: Some(Arc::new([])),
                acl: acl.clone(),
                czxid: 0,
                mzxid: 0,
                pzxid: 0,
                ctime: 0,
                mtime: 0,
                version: 0,
                cversion: 0,
                aversion,
                owner: Owner::Nobody,
                children: children.iter().map(|name| Arc::from(*name)).collect(),
                below: Below {
                    nodes: signed(children.len()),
                    bytes: 0,
                },
                digest: 0,
            };
            tree.extras.parents += usize::from(!node.children.is_empty());
            tree.insert(path.into(), node);
        }
        tree
    }

    /// The node at `path`; the empty path is an alias of the root.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes
            .get(if path.is_empty() { ROOT } else { path })
            .map(Arc::as_ref)
    }

    /// The zxid of the last transaction in this version.
    pub(crate) fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// The sum of the digests of all nodes.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Total bytes of paths and data, about what Apache calls the approximate data size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Total bytes of paths.
    pub(super) fn path_bytes(&self) -> usize {
        self.path_bytes
    }

    /// Total bytes of data.
    pub(super) fn data_bytes(&self) -> usize {
        self.bytes - self.path_bytes
    }

    /// Number of open sessions, and how many of them own ephemeral nodes.
    pub(super) fn session_counts(&self) -> (usize, usize) {
        (self.sessions.len(), self.ephemerals.len())
    }

    /// Number of ephemeral nodes.
    pub(crate) fn ephemeral_count(&self) -> usize {
        let counts = self.ephemerals.values().map(|owned| owned.paths.len());
        counts.sum()
    }

    /// Open sessions with their timeouts in milliseconds.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (i64, i32)> {
        self.sessions
            .iter()
            .map(|(id, timeout_ms)| (*id, *timeout_ms))
    }

    /// Whether the session is open.
    pub(crate) fn has_session(&self, id: i64) -> bool {
        self.sessions.contains_key(&id)
    }

    /// The ephemeral nodes of a session, in order.
    pub(crate) fn ephemerals_of(&self, session_id: i64) -> impl Iterator<Item = &Arc<str>> {
        let owned = self.ephemerals.get(&session_id);
        owned.into_iter().flat_map(|owned| &owned.paths)
    }

    /// Number of ephemeral nodes of a session.
    pub(crate) fn ephemeral_count_of(&self, session_id: i64) -> usize {
        let owned = self.ephemerals.get(&session_id);
        owned.map_or(0, |owned| owned.paths.len())
    }

    /// Bytes of the list of a session's ephemeral nodes.
    pub(crate) fn ephemeral_bytes_of(&self, session_id: i64) -> usize {
        self.ephemerals
            .get(&session_id)
            .map_or(0, |owned| owned.bytes)
    }

    /// The sessions that own ephemeral nodes.
    pub(crate) fn ephemeral_owners(&self) -> impl Iterator<Item = i64> {
        self.ephemerals.keys().copied()
    }

    /// Visits the node at `top`, if it exists, and all its descendants, without recursion: nodes may be thousands of levels deep.
    pub(super) fn walk(&self, top: &Arc<str>, mut visit: impl FnMut(&Arc<str>, &Node)) {
        let mut open = vec![top.clone()];
        while let Some(path) = open.pop() {
            let Some(node) = self.get(&path) else {
                continue;
            };
            let prefix = if *path == *ROOT { "" } else { &*path };
            let children = node.children.iter().rev();
            open.extend(children.map(|name| Arc::from(format!("{prefix}/{name}"))));
            visit(&path, node);
        }
    }

    /// Visits all nodes, parents before children, siblings in the order of their names.
    pub(crate) fn walk_all(&self, visit: impl FnMut(&Arc<str>, &Node)) {
        self.walk(&Arc::from(ROOT), visit);
    }

    /// Opens a session, or restores one from a snapshot.
    pub(crate) fn open_session(&mut self, id: i64, timeout_ms: i32) {
        self.sessions.insert(id, timeout_ms);
    }

    /// Ends a session. Its ephemeral nodes are deleted separately.
    pub(super) fn end_session(&mut self, id: i64) {
        self.sessions.remove(&id);
    }

    /// Sets the zxid of this version, after all parts of that transaction are applied.
    pub(crate) fn advance(&mut self, zxid: i64) {
        self.last_zxid = zxid;
    }

    /// Restores a node from a snapshot. Returns false if its parent is missing.
    pub(crate) fn restore(&mut self, path: Arc<str>, node: Node) -> bool {
        if &*path != ROOT {
            let parent = path::parent(&path).unwrap_or_default();
            let parent = if parent.is_empty() { ROOT } else { parent };
            let Some(parent) = self.nodes.get_mut(parent) else {
                return false;
            };
            let children = &mut Arc::make_mut(parent).children;
            self.extras.parents += usize::from(children.is_empty());
            children.insert(path::name(&path).into());
        }
        self.own(&path, node.owner);
        self.tally(&path, 1, signed(node.data_len()));
        self.insert(path, node);
        true
    }

    /// Completes a restore: sets the zxid, and derives quotas from the nodes.
    pub(crate) fn restored(&mut self, zxid: i64) {
        self.last_zxid = zxid;
        self.restore_quotas();
    }

    /// Deletes the ephemeral nodes of sessions that do not exist, and returns their number.
    pub(crate) fn remove_orphans(&mut self) -> usize {
        let orphans: Vec<Arc<str>> = self
            .ephemerals
            .iter()
            .filter(|(id, _)| !self.has_session(**id))
            .flat_map(|(_, owned)| owned.paths.iter().cloned())
            .collect();
        for path in &orphans {
            self.delete(self.last_zxid, path);
        }
        orphans.len()
    }

    /// Containers that have lost their last child, containers that never had one for `never_used_ms` (if not zero), and TTL nodes whose
    /// time has passed.
    pub(crate) fn outlived(&self, now_ms: i64, never_used_ms: i64) -> Vec<Arc<str>> {
        let paths = self.containers.iter().chain(&self.expiring);
        let is_due = |path: &&Arc<str>| {
            let node = self.get(path);
            node.is_some_and(|node| node.is_outlived(now_ms, never_used_ms))
        };
        paths.filter(is_due).cloned().collect()
    }

    /// Sets the child counter of `path`, which is its next sequence number.
    pub(crate) fn set_child_counter(&mut self, path: &str, count: i32) -> bool {
        self.update(path, |node| node.cversion = count).is_some()
    }

    /// Adds a node to the index of its owner.
    pub(super) fn own(&mut self, path: &Arc<str>, owner: Owner) {
        match owner {
            Owner::Nobody => {}
            Owner::Session(id) => {
                let owned = self.ephemerals.entry(id).or_default();
                if owned.paths.insert(path.clone()).is_none() {
                    owned.bytes += listed_bytes(path);
                }
            }
            Owner::Container => {
                self.containers.insert(path.clone());
            }
            Owner::Ttl { .. } => {
                self.expiring.insert(path.clone());
            }
        }
    }

    pub(super) fn insert(&mut self, path: Arc<str>, mut node: Node) {
        node.digest = digest::of_node(&path, &node);
        self.digest = self.digest.wrapping_add(node.digest.into());
        self.bytes += path.len() + node.data_len();
        self.path_bytes += path.len();
        self.extras.acl_bytes += acl_bytes(&node.acl);
        self.nodes.insert(path, Arc::new(node));
    }

    /// Removes a node and its index entries.
    pub(super) fn remove(&mut self, path: &Arc<str>) -> Option<Arc<Node>> {
        let node = self.nodes.remove(path)?;
        self.digest = self.digest.wrapping_sub(node.digest.into());
        self.bytes -= path.len() + node.data_len();
        self.path_bytes -= path.len();
        self.extras.acl_bytes -= acl_bytes(&node.acl);
        self.extras.parents -= usize::from(!node.children.is_empty());
        match node.owner {
            Owner::Nobody => {}
            Owner::Session(id) => {
                if let Some(owned) = self.ephemerals.get_mut(&id) {
                    if owned.paths.remove(path).is_some() {
                        owned.bytes -= listed_bytes(path);
                    }
                    if owned.paths.is_empty() {
                        self.ephemerals.remove(&id);
                    }
                }
            }
            Owner::Container => drop(self.containers.remove(path)),
            Owner::Ttl { .. } => drop(self.expiring.remove(path)),
        }
        Some(node)
    }

    /// Replaces the access list of a node.
    pub(super) fn set_acl(&mut self, path: &str, acl: AclList, aversion: Option<i32>) {
        let after = acl_bytes(&acl);
        let before = self.update(path, |node| {
            node.aversion = aversion.unwrap_or(node.aversion);
            acl_bytes(&std::mem::replace(&mut node.acl, acl))
        });
        if let Some(before) = before {
            self.extras.acl_bytes = self.extras.acl_bytes + after - before;
        }
    }

    /// The descendant counts of the node at `path`; they are not part of the digest.
    pub(super) fn below_mut(&mut self, path: &str) -> Option<&mut Below> {
        self.nodes
            .get_mut(path)
            .map(|node| &mut Arc::make_mut(node).below)
    }

    /// Changes a node in this version only (copy-on-write); `None` if it does not exist.
    pub(super) fn update<T>(
        &mut self,
        path: &str,
        change: impl FnOnce(&mut Node) -> T,
    ) -> Option<T> {
        let path = if path.is_empty() { ROOT } else { path };
        let node = Arc::make_mut(self.nodes.get_mut(path)?);
        self.digest = self.digest.wrapping_sub(node.digest.into());
        self.bytes -= node.data_len();
        let result = change(node);
        node.digest = digest::of_node(path, node);
        self.digest = self.digest.wrapping_add(node.digest.into());
        self.bytes += node.data_len();
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_tree_is_apaches() {
        let tree = Tree::fresh();
        assert_eq!(tree.digest(), 1_371_985_504);
        assert_eq!(tree.bytes(), 44);
        assert_eq!(tree.get("/").unwrap().stat().cversion, -1);
        assert_eq!(tree.get("").unwrap().stat().num_children, 1);
        assert_eq!(tree.get("/zookeeper").unwrap().stat().cversion, -2);
        assert_eq!(tree.get("/zookeeper/config").unwrap().stat().aversion, -1);
        assert_eq!(tree.descendant_count("/"), 3);
        assert_eq!(tree.descendant_count("/zookeeper"), 2);
    }
}
