//! Number and size of the descendants of each node, updated by every write, so that no request has to walk the tree, except at great depth.

use std::sync::Arc;

use super::path::{self, ROOT};
use super::tree::Tree;

/// Depth down to which nodes keep these counts. Each write updates its ancestors down to this level, so it bounds the cost of a write at
/// any depth.
const COUNTED_LEVELS: usize = 64;

/// Number and size of the descendants of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) nodes: i64,
    /// Total bytes of their data.
    pub(crate) bytes: i64,
}

impl Tree {
    /// Number of descendants of the node at `path`.
    pub(crate) fn descendant_count(&self, path: &str) -> usize {
        // Apache stores the root under two names. Under the empty one it counts itself.
        if path.is_empty() {
            return self.node_count();
        }
        if let Some(below) = self.below(path) {
            return usize::try_from(below.nodes).unwrap_or(0);
        }
        let mut count = 0;
        self.walk(&Arc::from(path), |_, _| count += 1);
        count - 1
    }

    /// Descendants of the node at `path`; `None` if it is too deep to have a count, or does not exist.
    pub(crate) fn below(&self, path: &str) -> Option<Below> {
        let node = self.get(path)?;
        if path.is_empty() || path == ROOT {
            // Read from the totals of the tree.
            let data_bytes = self.data_bytes();
            return Some(Below {
                nodes: signed(self.node_count() - 1),
                bytes: signed(data_bytes - node.data_len()),
            });
        }
        (path::below_root(path).count() < COUNTED_LEVELS).then_some(node.below)
    }

    /// Adds to the counts of all ancestors of `path`.
    pub(super) fn tally(&mut self, path: &str, nodes: i64, bytes: i64) {
        if nodes == 0 && bytes == 0 {
            return;
        }
        for above in path::below_root(path).take(COUNTED_LEVELS) {
            if let Some(below) = self.below_mut(above) {
                below.nodes = below.nodes.wrapping_add(nodes);
                below.bytes = below.bytes.wrapping_add(bytes);
            }
        }
    }
}

/// A length, to be added or subtracted.
pub(super) fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;
    use crate::tree::access;
    use crate::tree::txn::{Data, Lifetime, PARENT_CVERSION_UNKNOWN, Txn, TxnBody};

    /// Counts descendants by a walk.
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
}
