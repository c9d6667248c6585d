//! The reference model of the tree.

use std::collections::BTreeMap;

use bellwether_server::proto::acl::{self, Acl, Id};
use bellwether_server::proto::code::ErrorCode;
use bellwether_server::proto::op::Op;
use bellwether_server::proto::stat::Stat;

use crate::reply::{Body, MultiResult};
use crate::request::{Create, Request};

/// The longest time to live: what fits beside its marker in the owner field.
const TTL_MS_MAX: i64 = 0xFF_FFFF_FFFF;

/// Nodes that are always there.
const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// The plainest server there can be, to compare others with: a map from paths to nodes.
///
/// It does what Apache 3.8.0 does, except where that is a defect: a check outside of a multi is
/// answered, and createTTL with another mode is refused whatever its time to live. Of access lists
/// it knows `world:anyone` only. Watches, quotas and authentication are not modelled.
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
struct Moment {
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

    /// Goes on from this zxid, for a server on which something was done before.
    pub fn set_zxid(&mut self, zxid: i64) {
        self.zxid = zxid;
    }

    /// Takes note of a new session, which takes a zxid and changes nothing else.
    pub fn open_session(&mut self) {
        self.zxid += 1;
    }

    /// Sets what the next sequential child of `path` is numbered with.
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

    /// Does what a server does with `request` of `session` at `time_ms`.
    ///
    /// Every write takes a zxid, whatever comes of it. A time to live counts only under createTTL,
    /// the one request that a server reads it from.
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
        let moment = Moment {
            session,
            zxid: self.zxid,
            time_ms,
        };
        match request {
            Request::Multi(ops) => self.multi(ops, moment),
            Request::CloseSession => {
                self.close_session(moment);
                Ok(Body::None)
            }
            Request::Create(create) => {
                let (path, stat) = self.create(create, lifetime_alone(create, session), moment)?;
                Ok(match create.op {
                    Op::Create => Body::Path(path),
                    _ => Body::PathStat(path, stat),
                })
            }
            Request::SetAcl { path, acl, version } => self.set_acl(path, acl, *version),
            simple => self.write(simple, moment),
        }
    }

    /// The writes that are the same inside and outside of a multi.
    fn write(&mut self, request: &Request, moment: Moment) -> Result<Body, ErrorCode> {
        match request {
            Request::Delete { path, version } => self.delete(path, *version, moment),
            Request::SetData {
                path,
                data,
                version,
            } => self.set_data(path, data.clone(), *version, moment),
            Request::Check { path, version } => self.check(path, *version),
            other => unmodelled(other),
        }
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
                // Apache holds the root twice and counts one of the two under its other name.
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

    fn multi(&mut self, ops: &[Request], moment: Moment) -> Result<Body, ErrorCode> {
        let is_well_formed = |op: &Request| {
            matches!(
                op,
                Request::Create(_)
                    | Request::Delete { .. }
                    | Request::SetData { .. }
                    | Request::Check { .. }
            )
        };
        let lacks_ttl = |op: &Request| match op {
            Request::Create(create) => {
                let needs_ttl = matches!(create.flags, Create::TTL | Create::TTL_SEQUENTIAL);
                needs_ttl && create.op != Op::CreateTtl
            }
            _ => false,
        };
        if !ops.iter().all(is_well_formed) {
            return Err(ErrorCode::MarshallingError);
        }
        let before = self.nodes.clone();
        let mut results = Vec::new();
        for op in ops {
            // Spoils the whole request, but only when its turn comes.
            if lacks_ttl(op) {
                self.nodes = before;
                return Err(ErrorCode::MarshallingError);
            }
            let outcome = match op {
                Request::Create(create) => self.create_in_multi(create, moment),
                simple => self
                    .write(simple, moment)
                    .map(|body| MultiResult::Done(simple.op().expect("a write"), body)),
            };
            match outcome {
                Ok(result) => results.push(result),
                Err(code) => {
                    self.nodes = before;
                    results.fill(MultiResult::Undone);
                    results.push(MultiResult::Failed(code));
                    let rest = MultiResult::Failed(ErrorCode::RuntimeInconsistency);
                    results.resize(ops.len(), rest);
                    break;
                }
            }
        }
        Ok(Body::Multi(results))
    }

    /// The mode alone says what is created, not the operation.
    fn create_in_multi(
        &mut self,
        create: &Create,
        moment: Moment,
    ) -> Result<MultiResult, ErrorCode> {
        let lifetime = lifetime_of(create, moment.session);
        let (path, stat) = self.create(create, lifetime, moment)?;
        let plain = (Create::PERSISTENT..=Create::EPHEMERAL_SEQUENTIAL).contains(&create.flags);
        let keeps_create2 = self.keeps_create2_in_multi && create.op == Op::Create2;
        Ok(if plain && !keeps_create2 {
            MultiResult::Done(Op::Create, Body::Path(path))
        } else {
            MultiResult::Done(Op::Create2, Body::PathStat(path, stat))
        })
    }

    /// The checks in Apache's order (PrepRequestProcessor.pRequest2TxnCreate), then the create.
    fn create(
        &mut self,
        create: &Create,
        lifetime: Result<Lifetime, ErrorCode>,
        moment: Moment,
    ) -> Result<(String, Stat), ErrorCode> {
        if !(Create::PERSISTENT..=Create::TTL_SEQUENTIAL).contains(&create.flags) {
            return Err(ErrorCode::BadArguments);
        }
        if create.flags >= Create::TTL && !self.extended_types {
            return Err(ErrorCode::Unimplemented);
        }
        let lifetime = lifetime?;
        let parent_path = parent_of(&create.path)?.to_owned();
        let acl = valid_acl(&create.acl)?;
        let parent = self.permitted(&parent_path, acl::CREATE)?;
        let counter = parent.child_counter;
        let parent_is_ephemeral = matches!(parent.lifetime, Lifetime::Ephemeral(_));
        let sequential = [
            Create::PERSISTENT_SEQUENTIAL,
            Create::EPHEMERAL_SEQUENTIAL,
            Create::TTL_SEQUENTIAL,
        ];
        let path = if sequential.contains(&create.flags) {
            format!("{}{counter:010}", create.path)
        } else {
            create.path.clone()
        };
        validate(&path)?;
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if parent_is_ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }

        let node = Node {
            data: create.data.clone(),
            acl,
            lifetime,
            czxid: moment.zxid,
            mzxid: moment.zxid,
            pzxid: moment.zxid,
            ctime: moment.time_ms,
            mtime: moment.time_ms,
            version: 0,
            child_counter: 0,
            aversion: 0,
        };
        self.nodes.insert(path.clone(), node);
        let parent = self.node_mut(&parent_path)?;
        // It is never set back: at the end of its range it stays there, and with it the zxid.
        if let Some(next) = counter.checked_add(1) {
            parent.child_counter = next;
            parent.pzxid = moment.zxid;
        }
        let stat = self.stat(&path);
        Ok((path, stat))
    }

    fn delete(&mut self, path: &str, version: i32, moment: Moment) -> Result<Body, ErrorCode> {
        let parent = parent_of(path)?;
        if RESERVED.contains(&path) {
            return Err(ErrorCode::BadArguments);
        }
        self.permitted(parent, acl::DELETE)?;
        check_version(version, self.node(path)?.version)?;
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path, moment.zxid);
        Ok(Body::None)
    }

    fn set_data(
        &mut self,
        path: &str,
        data: Option<Vec<u8>>,
        version: i32,
        moment: Moment,
    ) -> Result<Body, ErrorCode> {
        validate(path)?;
        check_version(version, self.permitted(path, acl::WRITE)?.version)?;
        let node = self.node_mut(path)?;
        node.data = data;
        node.version = node.version.wrapping_add(1);
        node.mzxid = moment.zxid;
        node.mtime = moment.time_ms;
        Ok(Body::Stat(self.stat(path)))
    }

    fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Body, ErrorCode> {
        validate(path)?;
        let acl = valid_acl(acl)?;
        check_version(version, self.permitted(path, acl::ADMIN)?.aversion)?;
        let node = self.node_mut(path)?;
        node.acl = acl;
        node.aversion = node.aversion.wrapping_add(1);
        Ok(Body::Stat(self.stat(path)))
    }

    fn check(&self, path: &str, version: i32) -> Result<Body, ErrorCode> {
        validate(path)?;
        check_version(version, self.permitted(path, acl::READ)?.version)?;
        Ok(Body::None)
    }

    fn close_session(&mut self, moment: Moment) {
        for path in self.ephemerals(moment.session) {
            self.remove(&path, moment.zxid);
        }
    }

    fn remove(&mut self, path: &str, zxid: i64) {
        self.nodes.remove(path);
        let parent = parent_of(path).and_then(|parent| self.node_mut(parent));
        if let Ok(parent) = parent {
            parent.pzxid = parent.pzxid.max(zxid);
        }
    }

    fn node(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(key(path)).ok_or(ErrorCode::NoNode)
    }

    fn node_mut(&mut self, path: &str) -> Result<&mut Node, ErrorCode> {
        self.nodes.get_mut(key(path)).ok_or(ErrorCode::NoNode)
    }

    /// The node, if everybody has one of these rights to it.
    fn permitted(&self, path: &str, perms: i32) -> Result<&Node, ErrorCode> {
        let node = self.node(path)?;
        if node.acl.iter().all(|entry| entry.perms & perms == 0) {
            return Err(ErrorCode::NoAuth);
        }
        Ok(node)
    }

    /// What clients see of a node that is there.
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

/// What the paths below `path` begin with.
fn prefix(path: &str) -> String {
    match path {
        "" | "/" => "/".into(),
        path => format!("{path}/"),
    }
}

/// The text before the last slash.
fn parent_of(path: &str) -> Result<&str, ErrorCode> {
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments);
    }
    let (parent, _) = path.rsplit_once('/').ok_or(ErrorCode::BadArguments)?;
    Ok(parent)
}

/// PathUtils.validatePath.
fn validate(path: &str) -> Result<(), ErrorCode> {
    let refused =
        |unit: u16| matches!(unit, 0..=0x1F | 0x7F..=0x9F | 0xD800..=0xF8FF | 0xFFF0..=0xFFFF);
    let names = path.strip_prefix('/').ok_or(ErrorCode::BadArguments)?;
    let bad_name = |name: &str| matches!(name, "" | "." | "..");
    if path.encode_utf16().any(refused) || (!names.is_empty() && names.split('/').any(bad_name)) {
        return Err(ErrorCode::BadArguments);
    }
    Ok(())
}

fn check_version(expected: i32, actual: i32) -> Result<(), ErrorCode> {
    if expected != -1 && expected != actual {
        return Err(ErrorCode::BadVersion);
    }
    Ok(())
}

/// The list without repetitions, if it is about everybody and about somebody.
fn valid_acl(acl: &[Acl]) -> Result<Vec<Acl>, ErrorCode> {
    let mut list: Vec<Acl> = Vec::new();
    for entry in acl {
        if entry.id != Id::new("world", "anyone") {
            return Err(ErrorCode::InvalidAcl);
        }
        if !list.contains(entry) {
            list.push(entry.clone());
        }
    }
    if list.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }
    Ok(list)
}

/// What a create outside of a multi makes: two of the operations have a say in it.
fn lifetime_alone(create: &Create, session: i64) -> Result<Lifetime, ErrorCode> {
    match create.op {
        Op::CreateContainer if create.flags < Create::TTL => Ok(Lifetime::Container),
        Op::CreateTtl if create.flags < Create::TTL => Err(ErrorCode::BadArguments),
        _ => lifetime_of(create, session),
    }
}

/// What the mode says.
fn lifetime_of(create: &Create, session: i64) -> Result<Lifetime, ErrorCode> {
    Ok(match create.flags {
        Create::EPHEMERAL | Create::EPHEMERAL_SEQUENTIAL => Lifetime::Ephemeral(session),
        Create::CONTAINER => Lifetime::Container,
        Create::TTL | Create::TTL_SEQUENTIAL => {
            let ttl_ms = create.ttl_ms.filter(|_| create.op == Op::CreateTtl);
            match ttl_ms {
                Some(ttl_ms @ 1..=TTL_MS_MAX) => Lifetime::Ttl(ttl_ms),
                _ => return Err(ErrorCode::BadArguments),
            }
        }
        _ => Lifetime::Persistent,
    })
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
