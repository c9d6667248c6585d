//! One node of the tree.

use std::sync::Arc;

use bellwether_wire::stat::Stat;
use bytes::{BufMut as _, BytesMut};
use imbl::OrdSet;

use super::below::Below;
use super::txn::{AclList, Data, Lifetime};

/// What keeps a node alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Nothing: it stays until it is deleted.
    Nobody,
    /// The session with this id.
    Session(i64),
    /// Its children: it is deleted some time after the last one.
    Container,
    /// Its last change: it is deleted `ms` later if it has no children.
    Ttl { ms: i64 },
}

impl Owner {
    /// Owner of a node created by `session_id`.
    pub(crate) fn of(lifetime: Lifetime, session_id: i64) -> Self {
        match lifetime {
            Lifetime::Persistent => Self::Nobody,
            Lifetime::Ephemeral => Self::Session(session_id),
            Lifetime::Container => Self::Container,
            Lifetime::Ttl { ms } => Self::Ttl { ms },
        }
    }

    /// The number used in data files and digests (`EphemeralType`).
    pub(crate) fn stored(self) -> i64 {
        match self {
            Self::Nobody => 0,
            Self::Session(id) => id,
            Self::Container => i64::MIN,
            Self::Ttl { ms } => TTL_MARK | ms,
        }
    }

    /// Decodes such a number. A TTL is decoded even if new TTL nodes are not allowed, so that changing that setting loses no node.
    pub(crate) fn from_stored(number: i64) -> Self {
        match number {
            0 => Self::Nobody,
            i64::MIN => Self::Container,
            _ if number & TTL_MARK == TTL_MARK => Self::Ttl {
                ms: number & !TTL_MARK,
            },
            id => Self::Session(id),
        }
    }
}

/// Bits that mark a TTL; a session id never has all of them set.
const TTL_MARK: i64 = 0xFF << 56;

/// A node as stored in the tree, with its path as the key.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) data: Data,
    pub(crate) acl: AclList,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// Number of children ever created here; also the next sequence number. Clients see a different number, see [`stat`](Self::stat).
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) owner: Owner,
    /// The names of the children.
    pub(crate) children: OrdSet<Arc<str>>,
    pub(crate) below: Below,
    /// Contribution of this node to the digest of the tree.
    pub(crate) digest: u32,
}

impl Node {
    pub(crate) fn data_len(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.len())
    }

    /// Whether this is a container that has lost its last child, a container that never had one for `never_used_ms` (if not zero), or a TTL
    /// node without children whose time has passed.
    pub(crate) fn is_outlived(&self, now_ms: i64, never_used_ms: i64) -> bool {
        let unchanged_ms = now_ms.saturating_sub(self.mtime);
        let is_due = match self.owner {
            Owner::Container => {
                self.cversion != 0 || never_used_ms > 0 && unchanged_ms > never_used_ms
            }
            Owner::Ttl { ms } => unchanged_ms > ms,
            Owner::Nobody | Owner::Session(_) => false,
        };
        is_due && self.children.is_empty()
    }

    /// Appends the fields that snapshots store; the others are derived.
    pub(crate) fn encode_persisted(&self, out: &mut BytesMut) {
        for number in [self.czxid, self.mzxid, self.ctime, self.mtime] {
            out.put_i64(number);
        }
        for number in [self.version, self.cversion, self.aversion] {
            out.put_i32(number);
        }
        out.put_i64(self.owner.stored());
        out.put_i64(self.pzxid);
    }

    /// The stat that clients receive.
    pub(crate) fn stat(&self) -> Stat {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let num_children = number(self.children.len());
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creates plus deletes: twice the creates, minus the children left.
            cversion: self.cversion.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            ephemeral_owner: match self.owner {
                Owner::Session(id) => id,
                _ => 0,
            },
            data_length: number(self.data_len()),
            num_children,
            pzxid: self.pzxid,
        }
    }
}
