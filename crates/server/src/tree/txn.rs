//! Transactions: the results of writes. The log records them and the tree applies them.

use std::sync::Arc;

use bellwether_wire::acl::Acl;

/// The access list of a node, shared between nodes that have equal ones.
pub type AclList = Arc<[Acl]>;

/// The data of a node; null and empty are different.
pub type Data = Option<Arc<[u8]>>;

/// One entry of the log.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of the record")]
pub struct Txn {
    pub session_id: i64,
    /// The xid of the request; 0 for a write of the server itself.
    pub cxid: i32,
    pub zxid: i64,
    pub time_ms: i64,
    pub body: TxnBody,
}

/// Kind of node that a create makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in ZooKeeper's CreateMode")]
pub enum Lifetime {
    Persistent,
    Ephemeral,
    Container,
    Ttl { ms: i64 },
}

/// A change in final form: sequence numbers are chosen, access lists expanded.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of the records")]
pub enum TxnBody {
    Create {
        path: Arc<str>,
        data: Data,
        acl: AclList,
        lifetime: Lifetime,
        /// The parent's stored child counter after this create; [`PARENT_CVERSION_UNKNOWN`] in very
        /// old logs.
        parent_cversion: i32,
    },
    Delete {
        path: Arc<str>,
    },
    /// Like [`TxnBody::Delete`], but submitted by the server: an empty container or an outlived node.
    DeleteContainer {
        path: Arc<str>,
    },
    SetData {
        path: Arc<str>,
        data: Data,
        /// Version after this transaction.
        version: i32,
    },
    SetAcl {
        path: Arc<str>,
        acl: AclList,
        /// Version of the list after this transaction.
        version: i32,
    },
    /// Only inside a multi: Apache cannot read it at the top level.
    Check {
        path: Arc<str>,
        version: i32,
    },
    Multi(Vec<TxnBody>),
    /// A failed write with its error code: it takes a zxid and changes nothing.
    Error(i32),
    CreateSession {
        timeout_ms: i32,
    },
    CloseSession {
        /// The ephemeral nodes deleted with it.
        paths: Vec<Arc<str>>,
    },
}

/// Means one more than the parent's current counter: logs of Apache 3.3 do not contain it.
pub const PARENT_CVERSION_UNKNOWN: i32 = -1;
