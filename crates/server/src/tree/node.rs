//! One node.

use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use imbl::OrdSet;

use crate::proto::stat::Stat;
use crate::proto::txn::{AclList, Data, Lifetime};

/// What keeps a node alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Nothing: it stays until it is deleted.
    Nobody,
    /// The session with this id.
    Session(i64),
    /// Its children: it goes some time after the last one.
    Container,
    /// Its last change: it goes when that is this long ago and it has no children.
    Ttl { ms: i64 },
}

impl Owner {
    /// The owner that a create by `session_id` gives its node.
    pub(crate) fn of(lifetime: Lifetime, session_id: i64) -> Self {
        match lifetime {
            Lifetime::Persistent => Self::Nobody,
            Lifetime::Ephemeral => Self::Session(session_id),
            Lifetime::Container => Self::Container,
            Lifetime::Ttl { ms } => Self::Ttl { ms },
        }
    }

    /// The number that data files and digests hold (`EphemeralType`).
    pub(crate) fn stored(self) -> i64 {
        match self {
            Self::Nobody => 0,
            Self::Session(id) => id,
            Self::Container => i64::MIN,
            Self::Ttl { ms } => TTL_MARK | ms,
        }
    }

    /// What such a number means. A time to live is one whether or not new ones are allowed: nothing
    /// is lost because a setting is not.
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

/// The bits that tell a time to live from a session, which never has all of them.
const TTL_MARK: i64 = 0xFF << 56;

/// A node as the tree holds it. Its path is its key there.
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
    /// How many children were ever created here. Clients see another number, and it is the next
    /// sequence number.
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) owner: Owner,
    /// The names of the children.
    pub(crate) children: OrdSet<Arc<str>>,
    pub(crate) below: Below,
    /// What this node adds to the digest of the tree.
    pub(crate) digest: u32,
}

/// What lies below a node, at any depth. The tree keeps it current, so that nobody has to walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) nodes: i64,
    /// The bytes of their data.
    pub(crate) bytes: i64,
}

impl Node {
    pub(crate) fn data_len(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.len())
    }

    /// Whether it is an empty container that had children once, or none for `never_used_ms` (if not zero), or
    /// an empty node that has outlived its time.
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

    /// Appends the numbers that snapshots hold; the others follow from the rest.
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

    /// What clients see.
    pub(crate) fn stat(&self) -> Stat {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let num_children = number(self.children.len());
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creates and deletes: what was created twice, less what is still there.
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
