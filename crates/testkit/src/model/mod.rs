//! The reference model of the tree.

mod writes;

use std::collections::BTreeMap;

use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;
use bellwether_wire::stat::Stat;

use crate::raw::reply::{Body, MultiResult};
use crate::raw::request::Request;

/// Nodes that always exist.
const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// The simplest possible server, as a reference: a map from paths to nodes.
///
/// It does what Apache 3.8.0 does, except where that is a defect: a check outside of a multi is
/// answered, and createTTL with another mode is always refused. It knows only the access list
/// `world:anyone`. Watches, quotas and authentication are not modelled.
///
/// ```
/// use bellwether_testkit::{Body, Model, Request};
///
/// let mut model = Model::new();
/// let created = model.apply(1, 0, &Request::create("/a", "data"));
/// assert_eq!(created, Ok(Body::Path("/a".into())));
/// assert_eq!(model.zxid(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    nodes: BTreeMap<String, Node>,
    zxid: i64,
    extended_types: bool,
    keeps_create2_in_multi: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    data: Option<Vec<u8>>,
    acl: Vec<Acl>,
    lifetime: Lifetime,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    /// Counts creates of children only, and numbers the sequential ones.
    child_counter: i32,
    aversion: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    Persistent,
    Ephemeral(i64),
    Container,
    Ttl(i64),
}

/// The zxid and time of one write.
#[derive(Debug, Clone, Copy)]
struct TxnMoment {
    session: i64,
    zxid: i64,
    time_ms: i64,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// A fresh tree at zxid 0, without nodes with a time to live.
    pub fn new() -> Self {
        let mut nodes: BTreeMap<_, _> = RESERVED
            .into_iter()
            .map(|path| (path.to_owned(), Node::built_in()))
            .collect();
        if let Some(config) = nodes.get_mut("/zookeeper/config") {
            config.aversion = -1;
            config.acl = vec![Acl {
                perms: acl::READ,
                id: Id::new("world", "anyone"),
            }];
        }
        Self {
            nodes,
            zxid: 0,
            extended_types: false,
            keeps_create2_in_multi: false,
        }
    }

    /// Allows nodes with a time to live.
    #[must_use]
    pub fn with_extended_types(mut self) -> Self {
        self.extended_types = true;
        self
    }

    /// Answers create2 in a multi as such, like Apache from 3.8.2 on; before, it became a create.
    #[must_use]
    pub fn with_create2_in_multi(mut self) -> Self {
        self.keeps_create2_in_multi = true;
        self
    }

    /// The zxid of the last write, as every reply would show it.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Continues from this zxid, for a server that is not new.
    pub fn set_zxid(&mut self, zxid: i64) {
        self.zxid = zxid;
    }

    /// Records a new session, which takes a zxid and changes nothing else.
    pub fn open_session(&mut self) {
        self.zxid += 1;
    }

    /// Sets the number of the next sequential child of `path`.
    pub fn set_child_counter(&mut self, path: &str, counter: i32) -> Result<(), ErrorCode> {
        self.node_mut(path)?.child_counter = counter;
        Ok(())
    }

    /// The containers and nodes with a time to live that a server would delete by itself at `now_ms`.
    pub fn reapable(&self, now_ms: i64) -> Vec<String> {
        let outlived = |node: &Node| match node.lifetime {
            Lifetime::Container => node.child_counter > 0,
            Lifetime::Ttl(ttl_ms) => now_ms - node.mtime > ttl_ms,
            Lifetime::Persistent | Lifetime::Ephemeral(_) => false,
        };
        self.nodes
            .iter()
            .filter(|(path, node)| outlived(node) && self.children(path).is_empty())
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Deletes one of the [`reapable`](Self::reapable) nodes, which takes a zxid.
    pub fn reap(&mut self, path: &str) {
        self.zxid += 1;
        self.remove(path, self.zxid);
    }

    /// Executes `request` of `session` at `time_ms`, as a server does.
    ///
    /// Every write takes a zxid, also a failed one. Only createTTL has a time to live.
    ///
    /// # Panics
    ///
    /// For requests that are not modelled: those about watches, authentication, and raw ones.
    pub fn apply(
        &mut self,
        session: i64,
        time_ms: i64,
        request: &Request,
    ) -> Result<Body, ErrorCode> {
        if !request.op().is_some_and(Op::is_write) {
            return self.read(session, request);
        }
        self.zxid += 1;
        let moment = TxnMoment {
            session,
            zxid: self.zxid,
            time_ms,
        };
        self.write(request, moment)
    }

    fn read(&self, session: i64, request: &Request) -> Result<Body, ErrorCode> {
        Ok(match request {
            Request::Exists { path, .. } => {
                if path.contains('\0') {
                    return Err(ErrorCode::BadArguments);
                }
                self.node(path)?;
                Body::Stat(self.stat(path))
            }
            Request::GetData { path, .. } => {
                let node = self.permitted(path, acl::READ)?;
                Body::DataStat(node.data.clone(), self.stat(path))
            }
            Request::GetAcl { path } => {
                let node = self.permitted(path, acl::READ | acl::ADMIN)?;
                Body::AclStat(node.acl.clone(), self.stat(path))
            }
            Request::GetChildren { path, .. } => {
                self.permitted(path, acl::READ)?;
                Body::Children(self.children(path))
            }
            Request::GetChildren2 { path, .. } => {
                self.permitted(path, acl::READ)?;
                Body::ChildrenStat(self.children(path), self.stat(path))
            }
            Request::GetAllChildrenNumber { path } => {
                self.permitted(path, acl::READ)?;
                // Apache stores the root twice, and counts one of them under the other name.
                let root_itself = usize::from(path.is_empty());
                Body::Count(small(self.descendants(path) + root_itself))
            }
            Request::GetEphemerals { prefix } => {
                let prefix = match prefix.trim() {
                    "" | "/" => "",
                    _ => prefix,
                };
                let mut paths = self.ephemerals(session);
                paths.retain(|path| path.starts_with(prefix));
                Body::Ephemerals(paths)
            }
            Request::Sync { path } => Body::Path(path.clone()),
            Request::Ping => Body::None,
            Request::MultiRead(ops) => {
                let is_read = |op: &Request| {
                    matches!(op, Request::GetData { .. } | Request::GetChildren { .. })
                };
                if !ops.iter().all(is_read) {
                    return Err(ErrorCode::MarshallingError);
                }
                let result = |op: &Request| match self.read(session, op) {
                    Ok(body) => MultiResult::Done(op.op().expect("a read"), body),
                    Err(code) => MultiResult::Failed(code),
                };
                Body::Multi(ops.iter().map(result).collect())
            }
            Request::Reconfig { .. } => return Err(ErrorCode::ReconfigDisabled),
            other => return unmodelled(other),
        })
    }

    fn node(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(key(path)).ok_or(ErrorCode::NoNode)
    }

    fn node_mut(&mut self, path: &str) -> Result<&mut Node, ErrorCode> {
        self.nodes.get_mut(key(path)).ok_or(ErrorCode::NoNode)
    }

    /// The node, if every client has one of these permissions.
    fn permitted(&self, path: &str, perms: i32) -> Result<&Node, ErrorCode> {
        let node = self.node(path)?;
        if node.acl.iter().all(|entry| entry.perms & perms == 0) {
            return Err(ErrorCode::NoAuth);
        }
        Ok(node)
    }

    /// The metadata of an existing node, as clients see it.
    fn stat(&self, path: &str) -> Stat {
        let node = &self.nodes[key(path)];
        let children = small(self.children(path).len());
        Stat {
            czxid: node.czxid,
            mzxid: node.mzxid,
            ctime: node.ctime,
            mtime: node.mtime,
            version: node.version,
            // Creates plus deletes, from a counter of creates.
            cversion: node.child_counter.wrapping_mul(2).wrapping_sub(children),
            aversion: node.aversion,
            ephemeral_owner: match node.lifetime {
                Lifetime::Ephemeral(session) => session,
                _ => 0,
            },
            data_length: small(node.data.as_ref().map_or(0, Vec::len)),
            num_children: children,
            pzxid: node.pzxid,
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let below = prefix(path);
        self.nodes
            .keys()
            .filter_map(|path| path.strip_prefix(&below))
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    fn descendants(&self, path: &str) -> usize {
        let below = prefix(path);
        self.nodes
            .keys()
            .filter(|path| path.len() > below.len() && path.starts_with(&below))
            .count()
    }

    fn ephemerals(&self, session: i64) -> Vec<String> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.lifetime == Lifetime::Ephemeral(session))
            .map(|(path, _)| path.clone())
            .collect()
    }
}

impl Node {
    /// A node that was never created.
    fn built_in() -> Self {
        Self {
            data: Some(Vec::new()),
            acl: vec![Acl::open()],
            lifetime: Lifetime::Persistent,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            child_counter: 0,
            aversion: 0,
        }
    }
}

/// The empty path is another name of the root.
fn key(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// The prefix of the paths below `path`.
fn prefix(path: &str) -> String {
    match path {
        "" | "/" => "/".into(),
        path => format!("{path}/"),
    }
}

fn small(count: usize) -> i32 {
    i32::try_from(count).expect("a model is small")
}

fn unmodelled<T>(request: &Request) -> T {
    panic!("not modelled: {request:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::request::Create;

    fn stat(model: &mut Model, path: &str) -> Stat {
        let body = model.apply(1, 0, &Request::exists(path)).unwrap();
        *body.stat().unwrap()
    }

    #[test]
    fn a_fresh_tree_is_apaches() {
        let mut model = Model::new();
        let root = stat(&mut model, "/");
        assert_eq!((root.cversion, root.num_children), (-1, 1));
        let reserved = stat(&mut model, "/zookeeper");
        assert_eq!((reserved.cversion, reserved.num_children), (-2, 2));
        assert_eq!(stat(&mut model, "/zookeeper/config").aversion, -1);
        assert_eq!(
            model.apply(1, 0, &Request::set_data("/zookeeper/config", "")),
            Err(ErrorCode::NoAuth)
        );
    }

    #[test]
    fn numbers_count_creates_and_not_deletes_or_failures() {
        let mut model = Model::new();
        let sequential = Request::create_mode("/n", "", Create::PERSISTENT_SEQUENTIAL);
        for (request, outcome) in [
            (Request::create("/a", ""), Ok(Body::Path("/a".into()))),
            (Request::create("/a", ""), Err(ErrorCode::NodeExists)),
            (Request::delete("/a"), Ok(Body::None)),
            (sequential, Ok(Body::Path("/n0000000001".into()))),
        ] {
            assert_eq!(model.apply(1, 0, &request), outcome);
        }
        assert_eq!(model.zxid(), 4);
        assert_eq!(stat(&mut model, "/").cversion, 2);
    }

    #[test]
    fn ephemerals_go_with_their_session_and_containers_with_their_last_child() {
        let mut model = Model::new();
        for request in [
            Request::create_container("/c"),
            Request::create_ephemeral("/c/e"),
        ] {
            model.apply(7, 0, &request).unwrap();
        }
        assert_eq!(stat(&mut model, "/c/e").ephemeral_owner, 7);
        assert!(model.reapable(0).is_empty());
        model.apply(7, 0, &Request::CloseSession).unwrap();
        assert_eq!(stat(&mut model, "/c").pzxid, 3);
        assert_eq!(model.reapable(0), ["/c"]);
        model.reap("/c");
        assert_eq!(
            model.apply(7, 0, &Request::exists("/c")),
            Err(ErrorCode::NoNode)
        );
    }
}
