//! Checks a write and turns it into a transaction.
//!
//! The checks run in Apache's order (`PrepRequestProcessor.pRequest2Txn`), because the client receives the error of the first check that
//! fails.

use std::sync::Arc;

use bellwether_wire::acl::{ADMIN, CREATE, DELETE, Id, READ, WRITE};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;
use bellwether_wire::request::{Create, PathVersion, SetAcl, SetData, Text};

use super::acl_pool::AclPool;
use super::growth::TreeLimits;
use crate::tree::access::{self, Schemes};
use crate::tree::txn::{Data, Lifetime, TxnBody};
use crate::tree::{Node, Owner, Tree, listed_bytes, path};

/// Version in a request that matches every version.
const ANY_VERSION: i32 = -1;

/// Maximum time to live: 40 bits of milliseconds.
const TTL_MS_MAX: i64 = 0xFF_FFFF_FFFF;

/// Settings that limit what writes may do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    pub(crate) extended_types: bool,
    pub(crate) skip_acl: bool,
    pub(crate) enforce_quota: bool,
    pub(crate) reconfig_enabled: bool,
    pub(crate) schemes: Schemes,
    /// Maximum number of ephemeral nodes per session.
    pub(crate) ephemerals_per_session_max: usize,
    /// Maximum bytes of their paths: the transaction that ends the session lists all of them.
    pub(crate) ephemeral_bytes_max: usize,
    /// Maximum size of the access lists of one request after expansion: the maximum frame length. Together with the frame itself, this is
    /// the longest transaction that Apache can read back.
    pub(crate) acl_bytes_max: usize,
    /// Limits of the tree as a whole.
    pub(crate) tree: TreeLimits,
}

/// Context of a check: the tree version, the rules, and the client.
#[derive(Debug)]
pub(super) struct Preparation<'a> {
    pub(super) tree: &'a Tree,
    pub(super) rules: Rules,
    pub(super) session_id: i64,
    pub(super) ids: &'a [Id],
    pub(super) acl_pool: &'a mut AclPool,
    /// What is left of [`Rules::acl_bytes_max`] for this request.
    pub(super) acl_bytes_left: &'a mut usize,
}

/// Kind of node that a create makes, and whether its name gets a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) lifetime: Lifetime,
    sequential: bool,
}

impl Mode {
    /// Mode of a single create request, which also depends on the operation (`CreateMode.fromFlag`).
    pub(super) fn of_request(op: Op, create: &Create<'_>, rules: Rules) -> Result<Self, ErrorCode> {
        let mode = Self::of_flags(create, rules)?;
        let is_ttl = matches!(mode.lifetime, Lifetime::Ttl { .. });
        match op {
            // Only TTL modes take a time to live. Apache accepts a negative one, and then fails to start again from its log.
            Op::CreateTtl if !is_ttl => Err(ErrorCode::BadArguments),
            Op::CreateContainer => Ok(Self {
                lifetime: Lifetime::Container,
                ..mode
            }),
            _ => Ok(mode),
        }
    }

    /// Mode of a create inside a multi, where only the flags count.
    pub(super) fn of_flags(create: &Create<'_>, rules: Rules) -> Result<Self, ErrorCode> {
        let (lifetime, sequential) = match create.flags {
            0 => (Lifetime::Persistent, false),
            1 => (Lifetime::Ephemeral, false),
            2 => (Lifetime::Persistent, true),
            3 => (Lifetime::Ephemeral, true),
            4 => (Lifetime::Container, false),
            5 | 6 if !rules.extended_types => return Err(ErrorCode::Unimplemented),
            5 | 6 => {
                let ms = create.ttl_ms.filter(|ms| (1..=TTL_MS_MAX).contains(ms));
                (
                    Lifetime::Ttl {
                        ms: ms.ok_or(ErrorCode::BadArguments)?,
                    },
                    create.flags == 6,
                )
            }
            _ => return Err(ErrorCode::BadArguments),
        };
        Ok(Self {
            lifetime,
            sequential,
        })
    }
}

impl<'t> Preparation<'t> {
    pub(super) fn create(&mut self, mode: Mode, create: Create<'_>) -> Result<TxnBody, ErrorCode> {
        let asked = create.path.ok_or(ErrorCode::MarshallingError)?;
        let parent_path = path::parent(&asked).ok_or(ErrorCode::BadArguments)?;
        if asked.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let acl = access::resolve(
            create.acl,
            self.ids,
            self.rules.schemes,
            self.acl_bytes_left,
        )?;
        let parent = self.tree.get(parent_path).ok_or(ErrorCode::NoNode)?;
        self.permit(parent, CREATE)?;
        let path: Arc<str> = if mode.sequential {
            format!("{asked}{:010}", parent.cversion).into()
        } else {
            asked.as_ref().into()
        };
        path::validate(&path)?;
        if self.tree.get(&path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(parent.owner, Owner::Session(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        if mode.lifetime == Lifetime::Ephemeral {
            self.check_ephemerals(&path)?;
        }
        let data = owned(create.data);
        if self.rules.enforce_quota {
            self.tree.check_quota(&path, 1, length(&data))?;
        }
        Ok(TxnBody::Create {
            path,
            data,
            acl: self.acl_pool.share(acl),
            lifetime: mode.lifetime,
            parent_cversion: parent.cversion.wrapping_add(1),
        })
    }

    /// Whether the session may own one more ephemeral node.
    fn check_ephemerals(&self, path: &str) -> Result<(), ErrorCode> {
        let count = self.tree.ephemeral_count_of(self.session_id);
        let bytes = self.tree.ephemeral_bytes_of(self.session_id) + listed_bytes(path);
        let fits = count < self.rules.ephemerals_per_session_max
            && bytes <= self.rules.ephemeral_bytes_max;
        fits.then_some(()).ok_or(ErrorCode::QuotaExceeded)
    }

    pub(super) fn delete(&self, body: &PathVersion<'_>) -> Result<TxnBody, ErrorCode> {
        let path = body.path.as_ref().ok_or(ErrorCode::MarshallingError)?;
        let parent_path = path::parent(path).ok_or(ErrorCode::BadArguments)?;
        let built_in = matches!(
            &**path,
            "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config"
        );
        if built_in || path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let parent = self.tree.get(parent_path).ok_or(ErrorCode::NoNode)?;
        self.permit(parent, DELETE)?;
        let node = self.tree.get(path).ok_or(ErrorCode::NoNode)?;
        check_version(node.version, body.version)?;
        if !node.children.is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        Ok(TxnBody::Delete {
            path: path.as_ref().into(),
        })
    }

    pub(super) fn set_data(&self, body: &SetData<'_>) -> Result<TxnBody, ErrorCode> {
        let (path, node) = self.existing(&body.path)?;
        self.permit(node, WRITE)?;
        let data = owned(body.data);
        if self.rules.enforce_quota {
            self.tree
                .check_quota(path, 0, length(&data) - length(&node.data))?;
        }
        check_version(node.version, body.version)?;
        Ok(TxnBody::SetData {
            path: path.into(),
            data,
            version: node.version.wrapping_add(1),
        })
    }

    pub(super) fn set_acl(&mut self, body: SetAcl<'_>) -> Result<TxnBody, ErrorCode> {
        path::validate(body.path.as_deref().unwrap_or_default())?;
        let acl = access::resolve(body.acl, self.ids, self.rules.schemes, self.acl_bytes_left)?;
        let (path, node) = self.existing(&body.path)?;
        self.permit(node, ADMIN)?;
        check_version(node.aversion, body.version)?;
        Ok(TxnBody::SetAcl {
            path: path.into(),
            acl: self.acl_pool.share(acl),
            version: node.aversion.wrapping_add(1),
        })
    }

    pub(super) fn check(&self, body: &PathVersion<'_>) -> Result<TxnBody, ErrorCode> {
        let (path, node) = self.existing(&body.path)?;
        self.permit(node, READ)?;
        check_version(node.version, body.version)?;
        // Apache logs the next version here and never reads it.
        Ok(TxnBody::Check {
            path: path.into(),
            version: node.version.wrapping_add(1),
        })
    }

    /// Returns the node at `path`, or an error if there is none.
    fn existing<'p>(&self, path: &'p Text<'_>) -> Result<(&'p str, &'t Node), ErrorCode> {
        let path = path.as_deref().unwrap_or_default();
        path::validate(path)?;
        Ok((path, self.tree.get(path).ok_or(ErrorCode::NoNode)?))
    }

    fn permit(&self, node: &Node, perms: i32) -> Result<(), ErrorCode> {
        if self.rules.skip_acl || access::allows(&node.acl, perms, self.ids) {
            Ok(())
        } else {
            Err(ErrorCode::NoAuth)
        }
    }
}

fn check_version(current: i32, expected: i32) -> Result<(), ErrorCode> {
    if expected == ANY_VERSION || expected == current {
        Ok(())
    } else {
        Err(ErrorCode::BadVersion)
    }
}

/// Copies the data: a slice would keep the much larger receive buffer alive.
fn owned(data: Option<&[u8]>) -> Data {
    data.map(Arc::from)
}

fn length(data: &Data) -> i64 {
    data.as_ref()
        .map_or(0, |data| i64::try_from(data.len()).unwrap_or(i64::MAX))
}
