//! Applies a transaction, which makes the next version of the tree.

use std::sync::Arc;

use imbl::OrdSet;

use super::access;
use super::below::{Below, signed};
use super::node::{Node, Owner};
use super::path;
use super::tree::Tree;
use super::txn::{AclList, Data, Lifetime, PARENT_CVERSION_UNKNOWN, Txn, TxnBody};

/// Change of one node by a transaction, for watches.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) path: Arc<str>,
    /// Access list of the node: clients that may not read it get no event.
    pub(crate) acl: AclList,
    /// Access list of the parent, whose children changed; `None` if only data changed.
    pub(crate) parent_acl: Option<AclList>,
}

/// Kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Created,
    Deleted,
    DataChanged,
}

impl Tree {
    /// Turns this version into the next one.
    ///
    /// A transaction prepared on this version always applies. Recovery may also replay a log onto a version that already contains some of
    /// it; then parts that do not apply are skipped.
    pub(crate) fn apply(&mut self, txn: &Txn) -> Vec<Change> {
        let mut changes = Vec::new();
        self.apply_body(txn, &txn.body, &mut changes);
        self.advance(txn.zxid);
        changes
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
                self.set_acl(path, acl.clone(), Some(*version));
            }
            // A multi that contains an error changed nothing.
            TxnBody::Multi(parts) if parts.iter().any(|part| matches!(part, TxnBody::Error(_))) => {
            }
            TxnBody::Multi(parts) => {
                for part in parts {
                    self.apply_body(txn, part, changes);
                }
            }
            TxnBody::Check { .. } | TxnBody::Error(_) => {}
            TxnBody::CreateSession { timeout_ms } => {
                self.open_session(txn.session_id, *timeout_ms);
            }
            TxnBody::CloseSession { paths } => {
                self.end_session(txn.session_id);
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
        let (parent_acl, is_first) = self.update(parent_path, |parent| {
            let is_first = parent.children.is_empty();
            parent.children.insert(name);
            let count = match parent_cversion {
                PARENT_CVERSION_UNKNOWN => parent.cversion.wrapping_add(1),
                count => count,
            };
            // Never decreases: at the end of its range the counter stays.
            if count > parent.cversion {
                parent.cversion = count;
                parent.pzxid = txn.zxid;
            }
            (parent.acl.clone(), is_first)
        })?;
        self.extras.parents += usize::from(is_first);
        if let Some(node) = self.get(path) {
            // Apache's fuzzy snapshots may contain a node created while they were written, but not its access list.
            if access::is_unknown(&node.acl) {
                self.set_acl(path, acl, None);
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

    pub(super) fn delete(&mut self, zxid: i64, path: &Arc<str>) -> Option<Change> {
        let (parent_acl, is_last) = self.update(path::parent(path)?, |parent| {
            let removed = parent.children.remove(path::name(path));
            parent.pzxid = parent.pzxid.max(zxid);
            let is_last = removed.is_some() && parent.children.is_empty();
            (parent.acl.clone(), is_last)
        })?;
        self.extras.parents -= usize::from(is_last);
        let node = self.remove(path)?;
        self.tally(path, -1, -signed(node.data_len()));
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
}
