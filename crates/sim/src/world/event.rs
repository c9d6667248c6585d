//! Everything that can happen at a set time: on the network, among the servers, and to tasks.
//!
//! Only data. What follows from an event is decided where it is handled, in the network or in the servers.

use bytes::Bytes;

use super::net::{ConnId, End};

/// An event at a set time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A connection reaches its server.
    Connects(ConnId),
    /// The machine of a paused server accepts a connection.
    Accepted(ConnId),
    /// Bytes reach the server.
    Up(ConnId),
    /// Bytes reach the process.
    Down(ConnId),
    /// The server learns that a connection ended.
    HangsUp(ConnId),
    /// The process learns that a connection ended.
    Ends(ConnId, End),
    /// An event among the servers.
    Server(ServerEvent),
    /// A task that was held back may run.
    Wake(u64),
}

/// An event among the servers.
#[derive(Debug, Hash)]
pub(crate) enum ServerEvent {
    Ensemble(EnsembleEvent),
    Embedded(EmbeddedEvent),
}

/// An event among the members.
#[derive(Debug, Hash)]
pub(crate) enum EnsembleEvent {
    /// A message reaches the leader.
    AtLeader {
        epoch: i64,
        member: usize,
        message: Message,
    },
    /// A quorum has acknowledged the leader's proposals, up to here.
    Commit { epoch: i64, upto: u64 },
    /// A member receives commits, and makes them visible.
    Apply { member: usize, life: u64, upto: u64 },
    /// The leader asks a member which sessions were active.
    Ping { member: usize, life: u64 },
    /// The question has arrived, and the member answers.
    Report { member: usize, life: u64 },
    /// The leader's answer whether a session that reconnects is alive.
    Revalidated {
        member: usize,
        life: u64,
        conn: ConnId,
        granted: Option<(i64, i32)>,
    },
    /// The leader's answer to a sync.
    Synced {
        member: usize,
        life: u64,
        conn: ConnId,
        xid: i32,
        path: String,
        upto: u64,
    },
    /// Reads of a connection have waited in the queue of its member.
    Reads {
        member: usize,
        life: u64,
        conn: ConnId,
    },
    /// The thread of a connection goes on with a request that it has read.
    Resumes {
        member: usize,
        life: u64,
        conn: ConnId,
        session: i64,
        frame: Bytes,
    },
    /// A session may have expired.
    Expiry { session: i64, planned: u64 },
    /// Empty containers are deleted.
    Reap,
    /// A leader is elected.
    Elected { epoch: i64 },
    /// A member that was cut off for too long gives up its clients.
    Leaves { member: usize, life: u64 },
    /// A member returns.
    Joins { member: usize, life: u64 },
    /// The leader has been without a quorum for too long.
    StepsDown { epoch: i64 },
}

/// Messages from members to the leader.
#[derive(Debug, Hash)]
pub(crate) enum Message {
    Open {
        conn: ConnId,
        timeout_ms: i32,
    },
    Revalidate {
        conn: ConnId,
        session: i64,
        timeout_ms: i32,
    },
    Request {
        conn: ConnId,
        session: i64,
        xid: i32,
        op: i32,
        body: Bytes,
    },
    Sync {
        conn: ConnId,
        session: i64,
        xid: i32,
        path: String,
    },
    Active(Vec<i64>),
}

/// An event of the server's machine. `life` counts its starts.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) enum EmbeddedEvent {
    /// The server has stopped by itself, or at a disk operation.
    Ends { life: u64 },
    /// It is started again.
    Starts { life: u64 },
    /// A pause is over.
    Resumes { life: u64 },
}
