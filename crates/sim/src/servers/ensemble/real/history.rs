//! What the clients of an ensemble sent and received, and the writes in their order.

use std::time::SystemTime;

use bellwether_server::files::txn::Txn;
use bellwether_testkit::{Frame, Request};

use crate::world::server_epoch_ms;

/// A moment, in microseconds since the beginning of virtual time: all processes are on one machine and share its clock.
pub(super) type Micros = u64;

pub(super) fn now() -> Micros {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    let micros = since.map_or(0, |since| since.as_micros());
    let start = u128::from(server_epoch_ms(0).unsigned_abs()) * 1_000;
    u64::try_from(micros.saturating_sub(start)).unwrap_or(u64::MAX)
}

/// One run of an ensemble.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// All writes, in the order of their zxids, from the log of a server.
    pub(super) txns: Vec<Txn>,
    /// Of all clients; those of one client are in order.
    pub(super) connections: Vec<Connection>,
    /// The leader of each epoch, in order.
    pub(super) leaders: Vec<(i64, usize)>,
    pub(super) faults: Vec<Fault>,
}

/// What was done to a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// It received nothing from the leader.
    Deaf {
        member: usize,
        from: Micros,
        to: Micros,
    },
    /// It was killed, and started again: it did nothing between these moments.
    Killed {
        member: usize,
        from: Micros,
        to: Micros,
    },
}

/// A connection of a client.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) client: usize,
    pub(super) member: usize,
    /// When its handshake was sent.
    pub(super) at: Micros,
    /// The highest zxid that the client had seen.
    pub(super) seen: i64,
    /// The session to reattach to, or 0.
    pub(super) session: i64,
    pub(super) timeout_ms: i32,
    pub(super) greeting: Option<Greeting>,
    pub(super) requests: Vec<Sent>,
    pub(super) received: Vec<Received>,
}

/// The answer to a handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Greeting {
    pub(super) at: Micros,
    /// Session and timeout, or a refusal.
    pub(super) granted: Option<(i64, i32)>,
}

/// A request. Requests of one moment were sent in one segment.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) at: Micros,
    pub(super) xid: i32,
    pub(super) request: Request,
}

/// A reply or event.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) at: Micros,
    pub(super) frame: Frame,
}

impl Connection {
    /// The session, if there was one.
    pub(super) fn granted(&self) -> Option<i64> {
        let granted = self.greeting.and_then(|greeting| greeting.granted);
        granted.map(|(session, _)| session)
    }

    /// When its last frame arrived.
    pub(super) fn last_at(&self) -> Micros {
        let greeting = self.greeting.map_or(self.at, |greeting| greeting.at);
        self.received.last().map_or(greeting, |last| last.at)
    }
}
