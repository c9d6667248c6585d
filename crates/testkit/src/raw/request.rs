//! Requests, as a client encodes them.

use bellwether_wire::acl::Acl;
use bellwether_wire::frame;
use bellwether_wire::jute::Writer;
use bellwether_wire::multi;
use bellwether_wire::op::Op;
use bellwether_wire::request;
use bytes::{BufMut, BytesMut};

/// One request. Fields are sent unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as ZooKeeper's requests and their fields"
)]
pub enum Request {
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    GetChildren2 {
        path: String,
        watch: bool,
    },
    GetAllChildrenNumber {
        path: String,
    },
    GetEphemerals {
        prefix: String,
    },
    Sync {
        path: String,
    },
    Ping,
    Check {
        path: String,
        version: i32,
    },
    /// Creates, deletes, setDatas and checks, all or none.
    Multi(Vec<Request>),
    /// getDatas and getChildrens, each with its own result.
    MultiRead(Vec<Request>),
    Reconfig {
        joining: Option<String>,
        leaving: Option<String>,
        members: Option<String>,
        config_id: i64,
    },
    /// `kind` is 1 for child watches, 2 for data watches, 3 for any.
    CheckWatches {
        path: String,
        kind: i32,
    },
    /// `kind` as in `CheckWatches`.
    RemoveWatches {
        path: String,
        kind: i32,
    },
    /// `mode` is 0 for persistent, 1 for persistent recursive.
    AddWatch {
        path: String,
        mode: i32,
    },
    /// Without the last two lists, which this request does not have.
    SetWatches(WatchLists),
    SetWatches2(WatchLists),
    Auth {
        scheme: String,
        data: Option<Vec<u8>>,
    },
    Sasl {
        token: Option<Vec<u8>>,
    },
    WhoAmI,
    CloseSession,
    /// Any bytes under any number; the body of the reply is not decoded either.
    Raw {
        op: i32,
        body: Vec<u8>,
    },
}

/// create, create2, createContainer and createTTL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Which of the four.
    pub op: Op,
    /// The path, without the number of a sequential node.
    pub path: String,
    /// The data; null and empty are different.
    pub data: Option<Vec<u8>>,
    /// The access list.
    pub acl: Vec<Acl>,
    /// The mode, one of the constants here.
    pub flags: i32,
    /// The time to live, sent only if set; createTTL needs it.
    pub ttl_ms: Option<i64>,
}

impl Create {
    /// A persistent node.
    pub const PERSISTENT: i32 = 0;
    /// An ephemeral node, deleted with its session.
    pub const EPHEMERAL: i32 = 1;
    /// A persistent sequential node.
    pub const PERSISTENT_SEQUENTIAL: i32 = 2;
    /// An ephemeral sequential node.
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
    /// A container, deleted after its last child.
    pub const CONTAINER: i32 = 4;
    /// A node with a time to live, deleted when unchanged for that time.
    pub const TTL: i32 = 5;
    /// As [`Self::TTL`], sequential.
    pub const TTL_SEQUENTIAL: i32 = 6;
}

/// The watches that a client restores after a reconnect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "named as the fields of ZooKeeper's record")]
pub struct WatchLists {
    pub relative_zxid: i64,
    pub data: Vec<String>,
    pub exist: Vec<String>,
    pub child: Vec<String>,
    pub persistent: Vec<String>,
    pub recursive: Vec<String>,
}

/// The usual requests, with an open access list, no watch and any version.
impl Request {
    /// Creates a persistent node.
    pub fn create(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self::create_mode(path, data, Create::PERSISTENT)
    }

    /// Creates an ephemeral node.
    pub fn create_ephemeral(path: impl Into<String>) -> Self {
        Self::create_mode(path, "", Create::EPHEMERAL)
    }

    /// Creates a node of the mode `flags`.
    pub fn create_mode(path: impl Into<String>, data: impl Into<Vec<u8>>, flags: i32) -> Self {
        Self::Create(Create {
            op: Op::Create,
            path: path.into(),
            data: Some(data.into()),
            acl: vec![Acl::open()],
            flags,
            ttl_ms: None,
        })
    }

    /// Creates a node of the mode `flags` and asks for its Stat.
    pub fn create2(path: impl Into<String>, data: impl Into<Vec<u8>>, flags: i32) -> Self {
        Self::Create(Create {
            op: Op::Create2,
            path: path.into(),
            data: Some(data.into()),
            acl: vec![Acl::open()],
            flags,
            ttl_ms: None,
        })
    }

    /// Creates a container.
    pub fn create_container(path: impl Into<String>) -> Self {
        Self::Create(Create {
            op: Op::CreateContainer,
            path: path.into(),
            data: Some(Vec::new()),
            acl: vec![Acl::open()],
            flags: Create::CONTAINER,
            ttl_ms: None,
        })
    }

    /// Creates a persistent node with a time to live.
    pub fn create_ttl(path: impl Into<String>, ttl_ms: i64) -> Self {
        Self::Create(Create {
            op: Op::CreateTtl,
            path: path.into(),
            data: Some(Vec::new()),
            acl: vec![Acl::open()],
            flags: Create::TTL,
            ttl_ms: Some(ttl_ms),
        })
    }

    /// Deletes a node of any version.
    pub fn delete(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::Delete { path, version: -1 }
    }

    /// Reads the Stat of a node.
    pub fn exists(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::Exists { path, watch: false }
    }

    /// Reads a node.
    pub fn get_data(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::GetData { path, watch: false }
    }

    /// Changes a node of any version.
    pub fn set_data(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self::SetData {
            path: path.into(),
            data: Some(data.into()),
            version: -1,
        }
    }

    /// Lists the children of a node.
    pub fn get_children(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::GetChildren { path, watch: false }
    }

    /// Adds the credential `user:password` to the connection.
    pub fn auth_digest(user_and_password: &str) -> Self {
        Self::Auth {
            scheme: "digest".into(),
            data: Some(user_and_password.into()),
        }
    }

    /// The same request with its watch flag set; those without one stay as they are.
    #[must_use]
    pub fn watching(mut self) -> Self {
        if let Self::Exists { watch, .. }
        | Self::GetData { watch, .. }
        | Self::GetChildren { watch, .. }
        | Self::GetChildren2 { watch, .. } = &mut self
        {
            *watch = true;
        }
        self
    }
}

impl Request {
    /// The operation, unless it is a raw one of an unknown number.
    pub fn op(&self) -> Option<Op> {
        Op::from_number(self.number())
    }

    /// The number of the operation.
    pub fn number(&self) -> i32 {
        let op = match self {
            Self::Create(create) => create.op,
            Self::Delete { .. } => Op::Delete,
            Self::Exists { .. } => Op::Exists,
            Self::GetData { .. } => Op::GetData,
            Self::SetData { .. } => Op::SetData,
            Self::GetAcl { .. } => Op::GetAcl,
            Self::SetAcl { .. } => Op::SetAcl,
            Self::GetChildren { .. } => Op::GetChildren,
            Self::GetChildren2 { .. } => Op::GetChildren2,
            Self::GetAllChildrenNumber { .. } => Op::GetAllChildrenNumber,
            Self::GetEphemerals { .. } => Op::GetEphemerals,
            Self::Sync { .. } => Op::Sync,
            Self::Ping => Op::Ping,
            Self::Check { .. } => Op::Check,
            Self::Multi(_) => Op::Multi,
            Self::MultiRead(_) => Op::MultiRead,
            Self::Reconfig { .. } => Op::Reconfig,
            Self::CheckWatches { .. } => Op::CheckWatches,
            Self::RemoveWatches { .. } => Op::RemoveWatches,
            Self::AddWatch { .. } => Op::AddWatch,
            Self::SetWatches(_) => Op::SetWatches,
            Self::SetWatches2(_) => Op::SetWatches2,
            Self::Auth { .. } => Op::Auth,
            Self::Sasl { .. } => Op::Sasl,
            Self::WhoAmI => Op::WhoAmI,
            Self::CloseSession => Op::CloseSession,
            Self::Raw { op, .. } => return *op,
        };
        op.number()
    }

    /// The whole frame, length included.
    pub fn encode(&self, xid: i32) -> BytesMut {
        let mut out = BytesMut::new();
        self.encode_into(xid, &mut out);
        out
    }

    pub(crate) fn encode_into(&self, xid: i32, out: &mut BytesMut) {
        frame::put(out, |out| {
            out.put_i32(xid);
            out.put_i32(self.number());
            self.encode_body(out);
        });
    }

    /// Appends the body.
    pub fn encode_body(&self, out: &mut BytesMut) {
        match self {
            Self::Create(create) => request::put_create(
                out,
                &create.path,
                create.data.as_deref(),
                &create.acl,
                create.flags,
                create.ttl_ms,
            ),
            Self::Delete { path, version } | Self::Check { path, version } => {
                request::put_path_version(out, path, *version);
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch }
            | Self::GetChildren2 { path, watch } => request::put_path_watch(out, path, *watch),
            Self::SetData {
                path,
                data,
                version,
            } => request::put_set_data(out, path, data.as_deref(), *version),
            Self::SetAcl { path, acl, version } => request::put_set_acl(out, path, acl, *version),
            Self::GetAcl { path }
            | Self::GetAllChildrenNumber { path }
            | Self::Sync { path }
            | Self::GetEphemerals { prefix: path } => request::put_path(out, path),
            Self::Multi(ops) | Self::MultiRead(ops) => {
                for op in ops {
                    // Any number, also an unknown one.
                    out.put_i32(op.number());
                    out.put_bool(false);
                    out.put_i32(-1);
                    op.encode_body(out);
                }
                multi::put_end(out);
            }
            Self::Reconfig {
                joining,
                leaving,
                members,
                config_id,
            } => request::put_reconfig(
                out,
                joining.as_deref(),
                leaving.as_deref(),
                members.as_deref(),
                *config_id,
            ),
            Self::CheckWatches { path, kind: number }
            | Self::RemoveWatches { path, kind: number }
            | Self::AddWatch { path, mode: number } => request::put_path_number(out, path, *number),
            Self::SetWatches(lists) => {
                let WatchLists {
                    data, exist, child, ..
                } = lists;
                request::put_set_watches(
                    out,
                    lists.relative_zxid,
                    [data, exist, child].map(Vec::as_slice),
                );
            }
            Self::SetWatches2(lists) => {
                let WatchLists {
                    data,
                    exist,
                    child,
                    persistent,
                    recursive,
                    ..
                } = lists;
                request::put_set_watches(
                    out,
                    lists.relative_zxid,
                    [data, exist, child, persistent, recursive].map(Vec::as_slice),
                );
            }
            Self::Auth { scheme, data } => request::put_auth(out, scheme, data.as_deref()),
            Self::Sasl { token } => out.put_buffer(token.as_deref()),
            Self::Ping | Self::WhoAmI | Self::CloseSession => {}
            Self::Raw { body, .. } => out.put_slice(body),
        }
    }
}
