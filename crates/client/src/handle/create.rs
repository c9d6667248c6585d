//! How a node is created.

use std::time::Duration;

use bellwether_wire::acl::Acl;
use bellwether_wire::op::Op;
use bellwether_wire::stat::Stat;
use bytes::BytesMut;

use crate::error::{Error, Invalid};

/// The longest time to live that servers accept, in milliseconds.
const TTL_MS_MAX: i64 = 0xFF_FFFF_FFFF;

/// The kind of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Stays, and the parent's counter is appended to its name.
    PersistentSequential,
    /// Is deleted with its session.
    Ephemeral,
    /// Is deleted with its session, and the parent's counter is appended to its name.
    EphemeralSequential,
    /// Is deleted by the server some time after its last child was deleted.
    Container,
    /// Is deleted by the server after its time to live without children and changes.
    PersistentWithTtl,
    /// As [`PersistentWithTtl`](Self::PersistentWithTtl), and the parent's counter is appended to its name.
    PersistentSequentialWithTtl,
}

impl CreateMode {
    /// Whether the node is deleted with its session.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Whether the parent's counter is appended to the name.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential
                | Self::EphemeralSequential
                | Self::PersistentSequentialWithTtl
        )
    }

    fn has_ttl(self) -> bool {
        matches!(
            self,
            Self::PersistentWithTtl | Self::PersistentSequentialWithTtl
        )
    }

    fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
            Self::PersistentWithTtl => 5,
            Self::PersistentSequentialWithTtl => 6,
        }
    }

    /// Options with this mode and the access list `acl`.
    pub fn with_acl(self, acl: impl Into<Vec<Acl>>) -> CreateOptions {
        CreateOptions::from(self).acl(acl)
    }

    /// Options with this mode and a time to live, which only the modes `…WithTtl` may have.
    pub fn with_ttl(self, ttl: Duration) -> CreateOptions {
        CreateOptions {
            ttl: Some(ttl),
            ..CreateOptions::from(self)
        }
    }
}

/// Mode, access list and time to live of a node. Open to all clients unless an access list is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    mode: CreateMode,
    acl: Vec<Acl>,
    ttl: Option<Duration>,
}

impl From<CreateMode> for CreateOptions {
    fn from(mode: CreateMode) -> Self {
        Self {
            mode,
            acl: vec![Acl::open()],
            ttl: None,
        }
    }
}

impl From<&CreateOptions> for CreateOptions {
    fn from(options: &CreateOptions) -> Self {
        options.clone()
    }
}

impl CreateOptions {
    /// The access list of the node.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<Acl>>) -> Self {
        Self {
            acl: acl.into(),
            ..self
        }
    }

    pub(crate) fn mode(&self) -> CreateMode {
        self.mode
    }

    /// The operation that creates such a node and answers with its Stat.
    pub(crate) fn op(&self) -> Op {
        match self.mode {
            CreateMode::Container => Op::CreateContainer,
            mode if mode.has_ttl() => Op::CreateTtl,
            _ => Op::Create2,
        }
    }

    /// The time to live as it is sent.
    pub(crate) fn ttl_ms(&self) -> Result<Option<i64>, Error> {
        match (self.mode.has_ttl(), self.ttl) {
            (false, None) => Ok(None),
            (true, Some(ttl)) => match i64::try_from(ttl.as_millis()) {
                Ok(ms @ 1..=TTL_MS_MAX) => Ok(Some(ms)),
                _ => Err(Error::Invalid(Invalid::Ttl)),
            },
            (true, None) | (false, Some(_)) => Err(Error::Invalid(Invalid::Ttl)),
        }
    }

    pub(crate) fn put(&self, out: &mut BytesMut, path: &str, data: &[u8], ttl_ms: Option<i64>) {
        let flags = self.mode.flags();
        bellwether_wire::request::put_create(out, path, Some(data), &self.acl, flags, ttl_ms);
    }
}

/// A node that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its path, with the number of a sequential node.
    pub path: String,
    /// Its metadata: `czxid` is the zxid of its creation.
    pub stat: Stat,
}
