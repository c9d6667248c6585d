//! A version of the tree, and how a transaction makes the next one of it.

use std::sync::Arc;

use imbl::{HashMap, OrdSet};

use super::node::{Below, Node, Owner};
use super::path::{self, ROOT};
use super::{access, digest};
use crate::proto::txn::{AclList, Data, Lifetime, PARENT_CVERSION_UNKNOWN, Txn, TxnBody};

/// How deep nodes may lie that know what is below them. Each write changes the nodes above it down to this level, so it
/// bounds what a write costs however deep it goes.
const COUNTED_LEVELS: usize = 64;

/// One version: all nodes and sessions after the transaction `last_zxid`.
///
/// Versions share what did not change between them, so a copy costs next to nothing.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: HashMap<Arc<str>, Arc<Node>>,
    ephemerals: HashMap<i64, OrdSet<Arc<str>>>,
    sessions: HashMap<i64, i32>,
    containers: OrdSet<Arc<str>>,
    expiring: OrdSet<Arc<str>>,
    pub(super) quotas: OrdSet<Arc<str>>,
    last_zxid: i64,
    digest: u64,
    bytes: usize,
    path_bytes: usize,
}

/// What a transaction did to one node, for those who watch.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) path: Arc<str>,
    /// The access list of the node: who may not read it is not told.
    pub(crate) acl: AclList,
    /// The access list of its parent, whose children changed, unless it is only data that changed.
    pub(crate) parent_acl: Option<AclList>,
}

/// The ways in which a node changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Created,
    Deleted,
    DataChanged,
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
            quotas: OrdSet::new(),
            last_zxid: 0,
            digest: 0,
            bytes: 0,
            path_bytes: 0,
        }
    }

    /// The tree of a database in which nothing has happened yet.
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
            tree.insert(path.into(), node);
        }
        tree
    }

    /// The node at `path`; the empty path is another name of the root.
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

    /// How many nodes there are.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Paths and data together, roughly what Apache calls the approximate data size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many ephemeral nodes there are.
    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemerals.values().map(OrdSet::len).sum()
    }

    /// The sessions that are open, with their timeouts in milliseconds.
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
        self.ephemerals.get(&session_id).into_iter().flatten()
    }

    /// How many ephemeral nodes a session has.
    pub(crate) fn ephemeral_count_of(&self, session_id: i64) -> usize {
        self.ephemerals.get(&session_id).map_or(0, OrdSet::len)
    }

    /// The sessions that own ephemeral nodes.
    pub(crate) fn ephemeral_owners(&self) -> impl Iterator<Item = i64> {
        self.ephemerals.keys().copied()
    }

    /// How many nodes lie below `path`, which is that of a node.
    pub(crate) fn descendant_count(&self, path: &str) -> usize {
        // The root under its other name counts itself in Apache, which keeps it under both.
        if path.is_empty() {
            return self.nodes.len();
        }
        if let Some(below) = self.below(path) {
            return usize::try_from(below.nodes).unwrap_or(0);
        }
        let mut count = 0;
        self.walk(&Arc::from(path), |_, _| count += 1);
        count - 1
    }

    /// What lies below the node at `path`; `None` for one so deep that only a walk could tell, and for none.
    pub(crate) fn below(&self, path: &str) -> Option<Below> {
        let node = self.get(path)?;
        if path.is_empty() || path == ROOT {
            // Every write changes that.
            let data_bytes = self.bytes - self.path_bytes;
            return Some(Below {
                nodes: signed(self.nodes.len() - 1),
                bytes: signed(data_bytes - node.data_len()),
            });
        }
        (path::below_root(path).count() < COUNTED_LEVELS).then_some(node.below)
    }

    /// Adds to what the nodes above `path` know to be below them.
    pub(super) fn tally(&mut self, path: &str, nodes: i64, bytes: i64) {
        if nodes == 0 && bytes == 0 {
            return;
        }
        for above in path::below_root(path).take(COUNTED_LEVELS) {
            if let Some(node) = self.nodes.get_mut(above) {
                let below = &mut Arc::make_mut(node).below;
                below.nodes = below.nodes.wrapping_add(nodes);
                below.bytes = below.bytes.wrapping_add(bytes);
            }
        }
    }

    /// Visits the node at `top`, if there is one, and all below it, without recursion: nodes may
    /// lie thousands of levels deep.
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

    /// Visits all nodes, each before its children, those in the order of their names.
    pub(crate) fn walk_all(&self, visit: impl FnMut(&Arc<str>, &Node)) {
        self.walk(&Arc::from(ROOT), visit);
    }

    /// Puts back a session of a snapshot.
    pub(crate) fn restore_session(&mut self, id: i64, timeout_ms: i32) {
        self.sessions.insert(id, timeout_ms);
    }

    /// Puts back a node of a snapshot; false if its parent is not there.
    pub(crate) fn restore(&mut self, path: Arc<str>, node: Node) -> bool {
        if &*path != ROOT {
            let parent = path::parent(&path).unwrap_or_default();
            let parent = if parent.is_empty() { ROOT } else { parent };
            let Some(parent) = self.nodes.get_mut(parent) else {
                return false;
            };
            Arc::make_mut(parent)
                .children
                .insert(path::name(&path).into());
        }
        self.own(&path, node.owner);
        self.tally(&path, 1, signed(node.data_len()));
        self.insert(path, node);
        true
    }

    /// Completes what was put back: the version that it is, and what follows from the nodes.
    pub(crate) fn restored(&mut self, zxid: i64) {
        self.last_zxid = zxid;
        self.restore_quotas();
    }

    /// Removes the ephemeral nodes of sessions that are not there, and tells how many there were.
    pub(crate) fn remove_orphans(&mut self) -> usize {
        let orphans: Vec<Arc<str>> = self
            .ephemerals
            .iter()
            .filter(|(id, _)| !self.has_session(**id))
            .flat_map(|(_, paths)| paths.iter().cloned())
            .collect();
        for path in &orphans {
            self.delete(self.last_zxid, path);
        }
        orphans.len()
    }

    /// The containers that had children once and have none now, those that never had any for
    /// `never_used_ms` (if not zero), and the nodes that have outlived their time.
    pub(crate) fn outlived(&self, now_ms: i64, never_used_ms: i64) -> Vec<Arc<str>> {
        let paths = self.containers.iter().chain(&self.expiring);
        let is_due = |path: &&Arc<str>| {
            let node = self.get(path);
            node.is_some_and(|node| node.is_outlived(now_ms, never_used_ms))
        };
        paths.filter(is_due).cloned().collect()
    }

    /// Makes this version the next one.
    ///
    /// What was prepared on this version applies without fail. A log may also be replayed onto a
    /// version that has some of it already; what does not apply is then passed over.
    pub(crate) fn apply(&mut self, txn: &Txn) -> Vec<Change> {
        let mut changes = Vec::new();
        self.apply_body(txn, &txn.body, &mut changes);
        self.advance(txn.zxid);
        changes
    }

    /// Makes this the version of `zxid`, once the parts of that transaction are applied.
    pub(crate) fn advance(&mut self, zxid: i64) {
        self.last_zxid = zxid;
    }

    /// Applies one part of `txn`.
    pub(crate) fn apply_body(&mut self, txn: &Txn, body: &TxnBody, changes: &mut Vec<Change>) {
        match body {
            TxnBody::Create {
                path,
                data,
                acl,
                lifetime,
                parent_cversion,
            } => changes.extend(self.create(
                txn,
                path,
                data.clone(),
                acl.clone(),
                *lifetime,
                *parent_cversion,
            )),
            TxnBody::Delete { path } | TxnBody::DeleteContainer { path } => {
                changes.extend(self.delete(txn.zxid, path));
            }
            TxnBody::SetData {
                path,
                data,
                version,
            } => {
                changes.extend(self.set_data(txn, path, data.clone(), *version));
            }
            TxnBody::SetAcl { path, acl, version } => {
                self.update(path, |node| {
                    node.acl = acl.clone();
                    node.aversion = *version;
                });
            }
            // A multi with an error inside changed nothing.
            TxnBody::Multi(parts) if parts.iter().any(|part| matches!(part, TxnBody::Error(_))) => {
            }
            TxnBody::Multi(parts) => {
                for part in parts {
                    self.apply_body(txn, part, changes);
                }
            }
            TxnBody::Check { .. } | TxnBody::Error(_) => {}
            TxnBody::CreateSession { timeout_ms } => {
                self.sessions.insert(txn.session_id, *timeout_ms);
            }
            TxnBody::CloseSession { paths } => {
                self.sessions.remove(&txn.session_id);
                for path in paths {
                    changes.extend(self.delete(txn.zxid, path));
                }
                let rest: Vec<_> = self.ephemerals_of(txn.session_id).cloned().collect();
                for path in &rest {
                    changes.extend(self.delete(txn.zxid, path));
                }
            }
        }
    }

    fn create(
        &mut self,
        txn: &Txn,
        path: &Arc<str>,
        data: Data,
        acl: AclList,
        lifetime: Lifetime,
        parent_cversion: i32,
    ) -> Option<Change> {
        let parent_path = path::parent(path)?;
        let name: Arc<str> = path::name(path).into();
        let parent_acl = self.update(parent_path, |parent| {
            parent.children.insert(name);
            let count = match parent_cversion {
                PARENT_CVERSION_UNKNOWN => parent.cversion.wrapping_add(1),
                count => count,
            };
            // Only upwards: at the end of its range the counter stays where it is.
            if count > parent.cversion {
                parent.cversion = count;
                parent.pzxid = txn.zxid;
            }
            parent.acl.clone()
        })?;
        if let Some(node) = self.nodes.get(path) {
            // A snapshot of Apache's may have a node that came while it was written, and lack its list.
            if access::is_unknown(&node.acl) {
                self.update(path, |node| node.acl = acl);
            }
            return None;
        }
        let owner = Owner::of(lifetime, txn.session_id);
        self.own(path, owner);
        let node = Node {
            data,
            acl: acl.clone(),
            czxid: txn.zxid,
            mzxid: txn.zxid,
            pzxid: txn.zxid,
            ctime: txn.time_ms,
            mtime: txn.time_ms,
            version: 0,
            cversion: 0,
            aversion: 0,
            owner,
            children: OrdSet::new(),
            below: Below::default(),
            digest: 0,
        };
        let bytes = signed(node.data_len());
        self.insert(path.clone(), node);
        self.tally(path, 1, bytes);
        self.quota_after_create(path);
        Some(Change {
            kind: ChangeKind::Created,
            path: path.clone(),
            acl,
            parent_acl: Some(parent_acl),
        })
    }

    fn delete(&mut self, zxid: i64, path: &Arc<str>) -> Option<Change> {
        let parent_acl = self.update(path::parent(path)?, |parent| {
            parent.children.remove(path::name(path));
            parent.pzxid = parent.pzxid.max(zxid);
            parent.acl.clone()
        })?;
        let node = self.nodes.remove(path)?;
        self.digest = self.digest.wrapping_sub(node.digest.into());
        self.bytes -= path.len() + node.data_len();
        self.path_bytes -= path.len();
        self.tally(path, -1, -signed(node.data_len()));
        match node.owner {
            Owner::Nobody => {}
            Owner::Session(id) => {
                if let Some(paths) = self.ephemerals.get_mut(&id) {
                    paths.remove(path);
                    if paths.is_empty() {
                        self.ephemerals.remove(&id);
                    }
                }
            }
            Owner::Container => drop(self.containers.remove(path)),
            Owner::Ttl { .. } => drop(self.expiring.remove(path)),
        }
        self.quota_after_delete(path, node.data_len());
        Some(Change {
            kind: ChangeKind::Deleted,
            path: path.clone(),
            acl: node.acl.clone(),
            parent_acl: Some(parent_acl),
        })
    }

    fn set_data(&mut self, txn: &Txn, path: &Arc<str>, data: Data, version: i32) -> Option<Change> {
        let before = signed(self.get(path)?.data_len());
        let after = signed(data.as_ref().map_or(0, |data| data.len()));
        let acl = self.update(path, |node| {
            node.data = data;
            node.version = version;
            node.mzxid = txn.zxid;
            node.mtime = txn.time_ms;
            node.acl.clone()
        })?;
        self.tally(path, 0, after - before);
        self.quota_after_set(path, after - before);
        Some(Change {
            kind: ChangeKind::DataChanged,
            path: path.clone(),
            acl,
            parent_acl: None,
        })
    }

    /// Sets how many children `path` has ever had: the next sequence number there.
    pub(crate) fn set_child_counter(&mut self, path: &str, count: i32) -> bool {
        self.update(path, |node| node.cversion = count).is_some()
    }

    /// Files a node under what keeps it alive.
    fn own(&mut self, path: &Arc<str>, owner: Owner) {
        match owner {
            Owner::Nobody => {}
            Owner::Session(id) => {
                self.ephemerals.entry(id).or_default().insert(path.clone());
            }
            Owner::Container => {
                self.containers.insert(path.clone());
            }
            Owner::Ttl { .. } => {
                self.expiring.insert(path.clone());
            }
        }
    }

    fn insert(&mut self, path: Arc<str>, mut node: Node) {
        node.digest = digest::of_node(&path, &node);
        self.digest = self.digest.wrapping_add(node.digest.into());
        self.bytes += path.len() + node.data_len();
        self.path_bytes += path.len();
        self.nodes.insert(path, Arc::new(node));
    }

    /// Changes a node in this version alone; `None` if there is none.
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

/// A length, to be added or taken away.
pub(super) fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    /// What a walk finds below a node.
    fn walked(tree: &Tree, path: &Arc<str>) -> Below {
        let mut below = Below::default();
        tree.walk(path, |found, node| {
            if found != path {
                below.nodes += 1;
                below.bytes += signed(node.data_len());
            }
        });
        below
    }

    fn any_path(rng: &mut StdRng) -> Arc<str> {
        let levels = 1..=rng.random_range(1..4);
        let names = levels.map(|_| ["/a", "/b", "/zookeeper", "/quota"][rng.random_range(0..4)]);
        let path: String = names.collect();
        match rng.random_range(0..8) {
            0 => "/zookeeper/quota/a/zookeeper_stats".into(),
            1 => "/zookeeper/quota/a/zookeeper_limits".into(),
            2 => "/zookeeper/quota/a".into(),
            _ => path.into(),
        }
    }

    #[test]
    fn every_node_knows_what_is_below_it() {
        for seed in 0..20 {
            println!("seed {seed}");
            let mut rng = StdRng::seed_from_u64(seed);
            let mut tree = Tree::fresh();
            for zxid in 1..400 {
                let path = any_path(&mut rng);
                let data: Data = Some(vec![b'x'; rng.random_range(0..9)].into());
                let has_children = tree
                    .get(&path)
                    .is_some_and(|node| !node.children.is_empty());
                let body = match rng.random_range(0..4) {
                    0 if !has_children => TxnBody::Delete { path },
                    1 => TxnBody::SetData {
                        path,
                        data,
                        version: 1,
                    },
                    _ => TxnBody::Create {
                        path,
                        data,
                        acl: access::open(),
                        lifetime: Lifetime::Persistent,
                        parent_cversion: PARENT_CVERSION_UNKNOWN,
                    },
                };
                let time_ms = 0;
                tree.apply(&Txn {
                    session_id: 1,
                    cxid: 1,
                    zxid,
                    time_ms,
                    body,
                });
            }
            assert!(tree.node_count() > 10, "too little happened");
            tree.walk_all(|path, _| {
                assert_eq!(tree.below(path), Some(walked(&tree, path)), "{path}");
            });
        }
    }

    #[test]
    fn below_the_levels_that_are_counted_a_walk_tells() {
        let mut tree = Tree::fresh();
        let path = |levels: usize| Arc::<str>::from("/a".repeat(levels));
        for levels in 1..=COUNTED_LEVELS + 10 {
            let body = TxnBody::Create {
                path: path(levels),
                data: None,
                acl: access::open(),
                lifetime: Lifetime::Persistent,
                parent_cversion: PARENT_CVERSION_UNKNOWN,
            };
            let zxid = i64::try_from(levels).unwrap();
            tree.apply(&Txn {
                session_id: 1,
                cxid: 1,
                zxid,
                time_ms: 0,
                body,
            });
        }
        for (levels, is_counted) in [
            (1, true),
            (COUNTED_LEVELS, true),
            (COUNTED_LEVELS + 1, false),
        ] {
            let path = path(levels);
            assert_eq!(tree.below(&path).is_some(), is_counted);
            assert_eq!(tree.descendant_count(&path), COUNTED_LEVELS + 10 - levels);
        }
    }

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
