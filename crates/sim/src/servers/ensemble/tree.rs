//! The tree of one member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::EventKind;
use bellwether_wire::multi::WriteOp;
use bellwether_wire::op::Op;
use bellwether_wire::path;
use bellwether_wire::stat::Stat;
use bytes::Bytes;

/// A map from paths to nodes.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: BTreeMap<Arc<str>, Node>,
    ephemerals: BTreeMap<i64, BTreeSet<Arc<str>>>,
    containers: BTreeSet<Arc<str>>,
    pub(crate) zxid: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) data: Bytes,
    kind: NodeKind,
    children: BTreeSet<Arc<str>>,
    /// Number of children ever created; the next sequence number.
    created: i32,
    stat: Stat,
}

/// Kind of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Persistent,
    Ephemeral(i64),
    Container,
}

/// One change, as every member applies it.
#[derive(Debug, Clone)]
pub(crate) enum TreeStep {
    Create(Arc<str>, Bytes, NodeKind),
    Delete(Arc<str>),
    Set(Arc<str>, Bytes),
    /// A check that passed, or a refusal: it takes a zxid and changes nothing.
    Nothing,
}

/// Zxid and time of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) zxid: i64,
    pub(crate) time_ms: i64,
}

/// Event of a change, for watches.
pub(crate) type Touched = (EventKind, Arc<str>);

impl Tree {
    pub(crate) fn new(config: &str) -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            ephemerals: BTreeMap::new(),
            containers: BTreeSet::new(),
            zxid: 0,
        };
        let mut root = Node::new(Bytes::new(), NodeKind::Persistent);
        // Servers do not count the node that they start with.
        root.created = -1;
        tree.nodes.insert("/".into(), root);
        let at = At {
            zxid: 0,
            time_ms: 0,
        };
        for (path, data) in [
            ("/zookeeper", ""),
            ("/zookeeper/quota", ""),
            ("/zookeeper/config", config),
        ] {
            let data = Bytes::copy_from_slice(data.as_bytes());
            tree.apply(
                at,
                &TreeStep::Create(path.into(), data, NodeKind::Persistent),
            );
        }
        tree
    }

    pub(crate) fn get(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(path).ok_or(ErrorCode::NoNode)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|path| &**path)
    }

    /// Paths of the nodes that belong to sessions.
    pub(crate) fn ephemerals(&self) -> impl Iterator<Item = &str> {
        self.ephemerals.values().flatten().map(|path| &**path)
    }

    pub(crate) fn ephemerals_of(&self, session: i64) -> Vec<Arc<str>> {
        let paths = self.ephemerals.get(&session);
        paths.into_iter().flatten().cloned().collect()
    }

    /// Containers that have lost their last child.
    pub(crate) fn reapable(&self) -> Vec<Arc<str>> {
        let is_due = |path: &&Arc<str>| self.nodes.get(*path).is_some_and(Node::is_reapable);
        self.containers.iter().filter(is_due).cloned().collect()
    }

    /// Checks a write, and returns its change. The checks run in Apache's order, because the first failure is the reply.
    pub(crate) fn prepare(&self, op: &WriteOp<'_>, session: i64) -> Result<TreeStep, ErrorCode> {
        match op {
            WriteOp::Create(op, create) => {
                let path = create.path.as_deref().ok_or(ErrorCode::BadArguments)?;
                let (is_sequential, kind) = match (op, create.flags) {
                    (Op::CreateContainer, _) | (_, 4) => (false, NodeKind::Container),
                    (_, 0) => (false, NodeKind::Persistent),
                    (_, 1) => (false, NodeKind::Ephemeral(session)),
                    (_, 2) => (true, NodeKind::Persistent),
                    (_, 3) => (true, NodeKind::Ephemeral(session)),
                    _ => return Err(ErrorCode::Unimplemented),
                };
                let parent = self.get(parent_of(path))?;
                let path = match is_sequential {
                    true => format!("{path}{:010}", parent.created),
                    false => path.to_owned(),
                };
                path::check(&path).map_err(|_| ErrorCode::BadArguments)?;
                if self.nodes.contains_key(path.as_str()) {
                    return Err(ErrorCode::NodeExists);
                }
                if matches!(parent.kind, NodeKind::Ephemeral(_)) {
                    return Err(ErrorCode::NoChildrenForEphemerals);
                }
                let data = Bytes::copy_from_slice(create.data.unwrap_or_default());
                Ok(TreeStep::Create(path.into(), data, kind))
            }
            WriteOp::Delete(delete) => {
                let path = delete.path.as_deref().ok_or(ErrorCode::BadArguments)?;
                let node = self.get(path)?;
                node.check_version(delete.version)?;
                match node.children.is_empty() {
                    true => Ok(TreeStep::Delete(path.into())),
                    false => Err(ErrorCode::NotEmpty),
                }
            }
            WriteOp::SetData(set) => {
                let path = set.path.as_deref().ok_or(ErrorCode::BadArguments)?;
                self.get(path)?.check_version(set.version)?;
                let data = Bytes::copy_from_slice(set.data.unwrap_or_default());
                Ok(TreeStep::Set(path.into(), data))
            }
            WriteOp::Check(check) => {
                let path = check.path.as_deref().ok_or(ErrorCode::BadArguments)?;
                self.get(path)?.check_version(check.version)?;
                Ok(TreeStep::Nothing)
            }
        }
    }

    /// Applies a change that was prepared on this version.
    pub(crate) fn apply(&mut self, at: At, step: &TreeStep) -> Option<Touched> {
        self.zxid = at.zxid;
        match step {
            TreeStep::Create(path, data, kind) => {
                let mut node = Node::new(data.clone(), *kind);
                node.stat.czxid = at.zxid;
                node.stat.mzxid = at.zxid;
                node.stat.pzxid = at.zxid;
                node.stat.ctime = at.time_ms;
                node.stat.mtime = at.time_ms;
                match *kind {
                    NodeKind::Ephemeral(session) => {
                        let own = self.ephemerals.entry(session).or_default();
                        own.insert(path.clone());
                    }
                    NodeKind::Container => {
                        self.containers.insert(path.clone());
                    }
                    NodeKind::Persistent => {}
                }
                self.nodes.insert(path.clone(), node);
                let parent = self.nodes.get_mut(parent_of(path))?;
                parent.children.insert(name_of(path).into());
                parent.created += 1;
                parent.stat.pzxid = at.zxid;
                Some((EventKind::NodeCreated, path.clone()))
            }
            TreeStep::Delete(path) => {
                let node = self.nodes.remove(path)?;
                match node.kind {
                    NodeKind::Ephemeral(session) => {
                        if let Some(own) = self.ephemerals.get_mut(&session) {
                            own.remove(path);
                            if own.is_empty() {
                                self.ephemerals.remove(&session);
                            }
                        }
                    }
                    NodeKind::Container => {
                        self.containers.remove(path);
                    }
                    NodeKind::Persistent => {}
                }
                let parent = self.nodes.get_mut(parent_of(path))?;
                parent.children.remove(name_of(path));
                parent.stat.pzxid = at.zxid;
                Some((EventKind::NodeDeleted, path.clone()))
            }
            TreeStep::Set(path, data) => {
                let node = self.nodes.get_mut(path)?;
                node.data = data.clone();
                node.stat.version += 1;
                node.stat.mzxid = at.zxid;
                node.stat.mtime = at.time_ms;
                Some((EventKind::NodeDataChanged, path.clone()))
            }
            TreeStep::Nothing => None,
        }
    }

    /// What must be restored if a later part of a multi fails.
    pub(crate) fn before(&self, step: &TreeStep) -> Vec<(Arc<str>, Option<Node>)> {
        let path = match step {
            TreeStep::Create(path, ..) | TreeStep::Delete(path) | TreeStep::Set(path, _) => path,
            TreeStep::Nothing => return Vec::new(),
        };
        let parent: Arc<str> = parent_of(path).into();
        [path.clone(), parent]
            .map(|path| {
                let node = self.nodes.get(&path).cloned();
                (path, node)
            })
            .into()
    }

    /// Restores the nodes saved by [`before`](Self::before).
    pub(crate) fn undo(&mut self, zxid: i64, before: Vec<(Arc<str>, Option<Node>)>) {
        self.zxid = zxid;
        for (path, node) in before.into_iter().rev() {
            let present = self.nodes.remove(&path);
            if let Some(NodeKind::Ephemeral(session)) = present.map(|node| node.kind)
                && let Some(own) = self.ephemerals.get_mut(&session)
            {
                own.remove(&path);
                if own.is_empty() {
                    self.ephemerals.remove(&session);
                }
            }
            self.containers.remove(&path);
            let Some(node) = node else { continue };
            match node.kind {
                NodeKind::Ephemeral(session) => {
                    let own = self.ephemerals.entry(session).or_default();
                    own.insert(path.clone());
                }
                NodeKind::Container => {
                    self.containers.insert(path.clone());
                }
                NodeKind::Persistent => {}
            }
            self.nodes.insert(path, node);
        }
    }
}

impl Node {
    fn new(data: Bytes, kind: NodeKind) -> Self {
        Self {
            data,
            kind,
            children: BTreeSet::new(),
            created: 0,
            stat: Stat::default(),
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let children = i32::try_from(self.children.len()).unwrap_or(i32::MAX);
        Stat {
            cversion: self.created.wrapping_mul(2).wrapping_sub(children),
            ephemeral_owner: match self.kind {
                NodeKind::Ephemeral(session) => session,
                NodeKind::Container | NodeKind::Persistent => 0,
            },
            data_length: i32::try_from(self.data.len()).unwrap_or(i32::MAX),
            num_children: children,
            ..self.stat
        }
    }

    pub(crate) fn children(&self) -> impl ExactSizeIterator<Item = &str> {
        self.children.iter().map(|name| &**name)
    }

    fn check_version(&self, version: i32) -> Result<(), ErrorCode> {
        match version == -1 || version == self.stat.version {
            true => Ok(()),
            false => Err(ErrorCode::BadVersion),
        }
    }

    fn is_reapable(&self) -> bool {
        self.kind == NodeKind::Container && self.created > 0 && self.children.is_empty()
    }
}

pub(crate) fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(slash) => &path[..slash],
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests;
