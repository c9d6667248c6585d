//! The memory that a version of the tree takes, known at any time without a walk.

use bellwether_wire::acl::Acl;

use super::below::signed;
use super::tree::Tree;
use super::txn::TxnBody;

/// Memory of a node without children, besides its path, its name in its parent, and its data.
const NODE_BYTES: usize = 550;

/// Memory of a set of children, or of ephemeral nodes, besides its items.
const SET_BYTES: usize = 250;

/// Memory of a session.
const SESSION_BYTES: usize = 100;

/// Memory of an entry of an access list, besides its text.
const ACL_BYTES: usize = 96;

/// What is counted for [`Tree::size`] alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extras {
    /// Nodes that have children.
    pub(super) parents: usize,
    /// Memory of the access lists, as if no two nodes shared one.
    pub(super) acl_bytes: usize,
}

/// How large a version of the tree is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    /// Estimate of its memory. Nodes that only other versions have are not in it.
    pub(crate) bytes: usize,
}

/// What a write adds to the size of the tree; less than zero if the tree becomes smaller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) nodes: i64,
    pub(crate) bytes: i64,
    /// Whether it creates a node or sets data or an access list, so that it may need space although the tree does not grow.
    pub(crate) stores: bool,
}

impl Tree {
    /// The present size.
    pub(crate) fn size(&self) -> Size {
        let nodes = self.node_count();
        let (sessions, owners) = self.session_counts();
        let Extras { parents, acl_bytes } = self.extras;
        // Names are parts of paths, and stored once more in the parent.
        let texts = self.data_bytes() + 2 * self.path_bytes();
        let overhead =
            nodes * NODE_BYTES + (parents + owners) * SET_BYTES + sessions * SESSION_BYTES;
        Size {
            nodes,
            bytes: texts + overhead + acl_bytes,
        }
    }

    /// What `body` would add to this version.
    pub(crate) fn growth(&self, body: &TxnBody) -> Growth {
        match body {
            TxnBody::Create {
                path, data, acl, ..
            } => {
                let data = data.as_ref().map_or(0, |data| data.len());
                Growth {
                    nodes: 1,
                    bytes: signed(2 * path.len() + data + acl_bytes(acl) + NODE_BYTES),
                    stores: true,
                }
            }
            TxnBody::SetData { path, data, .. } => {
                let after = data.as_ref().map_or(0, |data| data.len());
                let before = self.get(path).map_or(0, |node| node.data_len());
                Growth {
                    nodes: 0,
                    bytes: signed(after) - signed(before),
                    stores: true,
                }
            }
            TxnBody::SetAcl { path, acl, .. } => {
                let before = self.get(path).map_or(0, |node| acl_bytes(&node.acl));
                Growth {
                    nodes: 0,
                    bytes: signed(acl_bytes(acl)) - signed(before),
                    stores: true,
                }
            }
            TxnBody::Delete { path } | TxnBody::DeleteContainer { path } => {
                let Some(node) = self.get(path) else {
                    return Growth::default();
                };
                let bytes = 2 * path.len() + node.data_len() + acl_bytes(&node.acl) + NODE_BYTES;
                Growth {
                    nodes: -1,
                    bytes: -signed(bytes),
                    stores: false,
                }
            }
            // A multi is decided part by part. Sessions have a limit of their own, and their end makes the tree smaller.
            TxnBody::Multi(_)
            | TxnBody::Check { .. }
            | TxnBody::Error(_)
            | TxnBody::CreateSession { .. }
            | TxnBody::CloseSession { .. } => Growth::default(),
        }
    }
}

impl std::ops::AddAssign for Growth {
    fn add_assign(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
        self.stores |= other.stores;
    }
}

/// Memory of an access list that is not shared. The list that allows everything is one for all nodes.
pub(super) fn acl_bytes(list: &[Acl]) -> usize {
    match list {
        [only] if only.id.scheme == "world" => 0,
        _ => {
            let entries = list.iter();
            let bytes = entries.map(|acl| ACL_BYTES + acl.id.scheme.len() + acl.id.id.len());
            bytes.sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bellwether_wire::acl::Id;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;
    use crate::metrics::resident_bytes;
    use crate::tree::access;
    use crate::tree::txn::{Data, Lifetime, PARENT_CVERSION_UNKNOWN, Txn};

    fn apply(tree: &mut Tree, body: TxnBody) {
        tree.apply(&Txn {
            session_id: 1,
            cxid: 1,
            zxid: tree.last_zxid() + 1,
            time_ms: 0,
            body,
        });
    }

    fn create(path: String, data: usize, lifetime: Lifetime) -> TxnBody {
        TxnBody::Create {
            path: path.into(),
            data: Some(vec![b'x'; data].into()),
            acl: access::open(),
            lifetime,
            parent_cversion: PARENT_CVERSION_UNKNOWN,
        }
    }

    /// Counts by a walk.
    fn walked(tree: &Tree) -> Extras {
        let mut extras = Extras::default();
        tree.walk_all(|_, node| {
            extras.parents += usize::from(!node.children.is_empty());
            extras.acl_bytes += acl_bytes(&node.acl);
        });
        extras
    }

    #[test]
    fn size_is_kept_by_every_change() {
        for seed in 0..20 {
            println!("seed {seed}");
            let mut rng = StdRng::seed_from_u64(seed);
            let mut tree = Tree::fresh();
            for _ in 0..400 {
                let names =
                    (0..rng.random_range(1..4)).map(|_| ["/a", "/b"][rng.random_range(0..2)]);
                let path: Arc<str> = names.collect::<String>().into();
                let data: Data = Some(vec![b'x'; rng.random_range(0..9)].into());
                let acl: Arc<[Acl]> = match rng.random() {
                    true => access::open(),
                    false => Arc::new([Acl::new(31, Id::new("digest", "anyone"))]),
                };
                let is_leaf = tree.get(&path).is_some_and(|node| node.children.is_empty());
                let is_new = tree.get(&path).is_none();
                let has_parent = crate::tree::path::parent(&path)
                    .is_some_and(|parent| tree.get(parent).is_some());
                let body = match rng.random_range(0..4) {
                    0 if is_leaf => TxnBody::Delete { path },
                    1 if !is_new => TxnBody::SetData {
                        path,
                        data,
                        version: 1,
                    },
                    2 if !is_new => TxnBody::SetAcl {
                        path,
                        acl,
                        version: 1,
                    },
                    _ if is_new && has_parent => TxnBody::Create {
                        path,
                        data,
                        acl,
                        lifetime: Lifetime::Persistent,
                        parent_cversion: PARENT_CVERSION_UNKNOWN,
                    },
                    _ => continue,
                };
                let (before, growth) = (tree.size(), tree.growth(&body));
                let parents = tree.extras.parents;
                apply(&mut tree, body);
                assert_eq!(tree.extras, walked(&tree));
                // The first child takes a set, which a growth leaves out.
                let sets = signed(SET_BYTES) * (signed(tree.extras.parents) - signed(parents));
                assert_eq!(
                    signed(tree.size().bytes),
                    signed(before.bytes) + growth.bytes + sets
                );
                assert_eq!(
                    signed(tree.size().nodes),
                    signed(before.nodes) + growth.nodes
                );
            }
            assert!(tree.node_count() > 6, "too little happened");
        }
    }

    /// Real memory of trees of different shapes, compared with the estimate.
    #[test]
    fn memory_is_estimated_within_a_factor_of_two() {
        const NODES: usize = 100_000;
        type Shape = (&'static str, fn(usize) -> (String, usize, Lifetime));
        let shapes: [Shape; 4] = [
            ("flat, no data", |n| {
                (format!("/node-{n:010}"), 0, Lifetime::Persistent)
            }),
            ("flat, 100 bytes", |n| {
                (format!("/item-{n:010}"), 100, Lifetime::Persistent)
            }),
            ("flat, 1000 bytes", |n| {
                (format!("/large-{n:010}"), 1000, Lifetime::Persistent)
            }),
            ("pairs", |n| {
                let parent = n / 2;
                let path = match n % 2 {
                    0 => format!("/pair-{parent:010}"),
                    _ => format!("/pair-{parent:010}/child"),
                };
                (path, 0, Lifetime::Persistent)
            }),
        ];
        for (name, shape) in shapes {
            let mut tree = Tree::fresh();
            let before = resident_bytes().unwrap();
            for number in 0..NODES {
                let (path, data, lifetime) = shape(number);
                apply(&mut tree, create(path, data, lifetime));
            }
            let real = resident_bytes().unwrap() - before;
            let estimate = tree.size().bytes;
            println!("{name}: {real} bytes, estimated {estimate}");
            // What it frees must not serve the next tree.
            std::mem::forget(tree);
            let real = usize::try_from(real).unwrap();
            assert!(real < estimate && estimate < 2 * real, "{name}");
        }
    }
}
