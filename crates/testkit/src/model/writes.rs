//! Writes to the model.

use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;
use bellwether_wire::stat::Stat;

use super::{Lifetime, Model, Node, RESERVED, TxnMoment, unmodelled};
use crate::raw::reply::{Body, MultiResult};
use crate::raw::request::{Create, Request};

/// The longest time to live that fits beside its marker in the owner field.
const TTL_MS_MAX: i64 = 0xFF_FFFF_FFFF;

impl Model {
    pub(super) fn write(
        &mut self,
        request: &Request,
        moment: TxnMoment,
    ) -> Result<Body, ErrorCode> {
        match request {
            Request::Multi(ops) => self.multi(ops, moment),
            Request::CloseSession => {
                self.close_session(moment);
                Ok(Body::None)
            }
            Request::Create(create) => {
                let (path, stat) =
                    self.create(create, lifetime_alone(create, moment.session), moment)?;
                Ok(match create.op {
                    Op::Create => Body::Path(path),
                    _ => Body::PathStat(path, stat),
                })
            }
            Request::SetAcl { path, acl, version } => self.set_acl(path, acl, *version),
            simple => self.write_simple(simple, moment),
        }
    }

    /// Writes that work the same inside and outside of a multi.
    fn write_simple(&mut self, request: &Request, moment: TxnMoment) -> Result<Body, ErrorCode> {
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

    fn multi(&mut self, ops: &[Request], moment: TxnMoment) -> Result<Body, ErrorCode> {
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
            // Fails the whole multi, but only once this operation is reached.
            if lacks_ttl(op) {
                self.nodes = before;
                return Err(ErrorCode::MarshallingError);
            }
            let outcome = match op {
                Request::Create(create) => self.create_in_multi(create, moment),
                simple => self
                    .write_simple(simple, moment)
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

    /// Only the mode decides what is created, not the operation.
    fn create_in_multi(
        &mut self,
        create: &Create,
        moment: TxnMoment,
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
        moment: TxnMoment,
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
        // The counter never wraps: at the end of its range it stays, and so does the pzxid.
        if let Some(next) = counter.checked_add(1) {
            parent.child_counter = next;
            parent.pzxid = moment.zxid;
        }
        let stat = self.stat(&path);
        Ok((path, stat))
    }

    fn delete(&mut self, path: &str, version: i32, moment: TxnMoment) -> Result<Body, ErrorCode> {
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
        moment: TxnMoment,
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

    fn close_session(&mut self, moment: TxnMoment) {
        for path in self.ephemerals(moment.session) {
            self.remove(&path, moment.zxid);
        }
    }

    pub(super) fn remove(&mut self, path: &str, zxid: i64) {
        self.nodes.remove(path);
        let parent = parent_of(path).and_then(|parent| self.node_mut(parent));
        if let Ok(parent) = parent {
            parent.pzxid = parent.pzxid.max(zxid);
        }
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

/// The list without repetitions, if it is valid and not empty.
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

/// The kind of node of a create outside of a multi: two operations override the mode.
fn lifetime_alone(create: &Create, session: i64) -> Result<Lifetime, ErrorCode> {
    match create.op {
        Op::CreateContainer if create.flags < Create::TTL => Ok(Lifetime::Container),
        Op::CreateTtl if create.flags < Create::TTL => Err(ErrorCode::BadArguments),
        _ => lifetime_of(create, session),
    }
}

/// The kind of node of a mode.
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
