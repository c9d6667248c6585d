//! Transactions: what a write came to, as the log records it and the tree applies it.

use std::sync::Arc;

use super::acl::Acl;
use super::code::ErrorCode;

/// The access list of a node, shared between nodes that have equal ones.
pub type AclList = Arc<[Acl]>;

/// The data of a node; null and empty are different.
pub type Data = Option<Arc<[u8]>>;

/// One entry of the log.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct Txn {
    pub session_id: i64,
    /// The xid of the request; 0 for what the server does by itself.
    pub cxid: i32,
    pub zxid: i64,
    pub time_ms: i64,
    pub body: TxnBody,
}

/// What kind of node a create makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in ZooKeeper's CreateMode")]
pub enum Lifetime {
    Persistent,
    Ephemeral,
    Container,
    Ttl { ms: i64 },
}

/// What changes, in final form: sequence numbers chosen, access lists expanded.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of the records")]
pub enum TxnBody {
    Create {
        path: Arc<str>,
        data: Data,
        acl: AclList,
        lifetime: Lifetime,
        /// The parent's stored child counter after this create.
        parent_cversion: i32,
    },
    Delete {
        path: Arc<str>,
    },
    /// As [`TxnBody::Delete`], decided by the server: an empty container or an outlived node.
    DeleteContainer {
        path: Arc<str>,
    },
    SetData {
        path: Arc<str>,
        data: Data,
        /// The new version.
        version: i32,
    },
    SetAcl {
        path: Arc<str>,
        acl: AclList,
        /// The new version of the list.
        version: i32,
    },
    /// Only inside a multi: at the top level Apache cannot read it back.
    Check {
        path: Arc<str>,
        version: i32,
    },
    Multi(Vec<TxnBody>),
    /// A write that failed: it takes a zxid and changes nothing.
    Error(ErrorCode),
    CreateSession {
        timeout_ms: i32,
    },
    CloseSession {
        /// The ephemeral nodes that go with it.
        paths: Vec<Arc<str>>,
    },
}
