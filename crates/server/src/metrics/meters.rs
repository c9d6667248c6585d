//! Counters updated while requests are served.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bellwether_wire::op::Op;

use super::histogram::{COUNTS, Histogram, MICROSECONDS};

/// One row per operation code, and one for unknown codes.
const ROWS: usize = Op::CloseSession as usize + 2;

/// Why a connection was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refused {
    /// The maximum number of connections is open.
    TooMany,
    /// The maximum number of connections from its address is open.
    TooManyFromAddress,
    /// The maximum number of connections of its user on the Unix socket is open.
    TooManyOfUser,
    /// Too many connections have no session yet, or too many arrived within a second.
    TooManyHandshakes,
    /// There is no file descriptor for it.
    NoDescriptor,
    /// The server is stopping.
    Stopping,
}

/// Names of the reasons, in the order of [`Refused`].
const REASONS: [&str; 6] = [
    "too_many",
    "too_many_from_address",
    "too_many_of_user",
    "too_many_handshakes",
    "no_descriptor",
    "stopping",
];

/// A limit that a client has reached, other than those on which its connection is [refused](Refused).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// A request longer than the maximum; its connection is closed.
    FrameBytes,
    /// Incomplete requests of all connections; one that is long is dropped with its connection.
    InputBytes,
    /// Replies and events that a client does not read; its connection is closed.
    OutboxBytes,
    /// Outstanding requests, in number or bytes: a connection is not read for a while.
    Outstanding,
    /// The maximum number of sessions is open; a new one is refused.
    Sessions,
    /// The maximum number of sessions is being opened; a client waits for its turn.
    SessionOpenings,
    /// Watches, in number or bytes; the request is refused.
    Watches,
    /// Ephemeral nodes of a session, or the quota of a subtree; the write is refused.
    Quota,
    /// The disk is nearly full; a write that needs space is refused.
    Disk,
    /// The tree as a whole, in bytes or nodes; a write that makes it larger is refused.
    Tree,
}

/// Names of the limits, in the order of [`Limit`].
const LIMITS: [&str; 10] = [
    "frame_bytes",
    "input_bytes",
    "outbox_bytes",
    "outstanding",
    "sessions",
    "session_openings",
    "watches",
    "quota",
    "disk",
    "tree",
];

/// Counters of one server.
#[derive(Debug)]
pub(crate) struct Meters {
    /// Replies by operation: without and with an error.
    requests: [[AtomicU64; 2]; ROWS],
    pub(crate) read_time: Histogram,
    pub(crate) write_time: Histogram,
    pub(crate) sync_time: Histogram,
    pub(crate) commit_time: Histogram,
    pub(crate) commit_txns: Histogram,
    pub(crate) received_bytes: AtomicU64,
    /// Whether a thread could not lower its priority.
    pub(crate) keeps_priorities: AtomicBool,
    /// Whether a dashboard of this server can be read without a token.
    pub(crate) has_open_dashboard: AtomicBool,
    slow: [AtomicU64; ROWS],
    refused: [AtomicU64; REASONS.len()],
    reached: [AtomicU64; LIMITS.len()],
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            read_time: Histogram::new(MICROSECONDS),
            write_time: Histogram::new(MICROSECONDS),
            sync_time: Histogram::new(MICROSECONDS),
            commit_time: Histogram::new(MICROSECONDS),
            commit_txns: Histogram::new(COUNTS),
            received_bytes: AtomicU64::new(0),
            keeps_priorities: AtomicBool::new(false),
            has_open_dashboard: AtomicBool::new(false),
            slow: [const { AtomicU64::new(0) }; ROWS],
            refused: Default::default(),
            reached: Default::default(),
        }
    }
}

impl Meters {
    /// Counts a reply.
    pub(crate) fn answered(&self, op: Option<Op>, took: Duration, is_ok: bool) {
        self.requests[row(op)][usize::from(!is_ok)].fetch_add(1, Relaxed);
        match op {
            Some(op) if op.is_write() => self.write_time.add_time(took),
            _ => self.read_time.add_time(took),
        }
    }

    /// Counts a slow request.
    pub(crate) fn count_slow(&self, op: Option<Op>) {
        self.slow[row(op)].fetch_add(1, Relaxed);
    }

    pub(crate) fn refuse(&self, why: Refused) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn reach(&self, limit: Limit) {
        self.reached[limit as usize].fetch_add(1, Relaxed);
    }

    /// Operation, outcome and number of replies so far; only those that occurred.
    pub(crate) fn requests(&self) -> Vec<(String, &'static str, u64)> {
        let mut found = Vec::new();
        for (operation, counts) in operations().zip(&self.requests) {
            for (outcome, count) in ["ok", "error"].into_iter().zip(counts) {
                match count.load(Relaxed) {
                    0 => {}
                    count => found.push((operation.clone(), outcome, count)),
                }
            }
        }
        found
    }

    /// Operation and number of slow requests so far; only those that occurred.
    pub(crate) fn slow_requests(&self) -> Vec<(String, u64)> {
        let counts = self.slow.iter().map(|count| count.load(Relaxed));
        operations()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    pub(crate) fn refused(&self) -> [(&'static str, u64); REASONS.len()] {
        std::array::from_fn(|why| (REASONS[why], self.refused[why].load(Relaxed)))
    }

    /// How often each limit was reached.
    pub(crate) fn reached(&self) -> [(&'static str, u64); LIMITS.len()] {
        std::array::from_fn(|limit| (LIMITS[limit], self.reached[limit].load(Relaxed)))
    }
}

fn row(op: Option<Op>) -> usize {
    op.map_or(ROWS - 1, |op| op as usize)
}

/// Names of the rows.
fn operations() -> impl Iterator<Item = String> {
    Op::all().map(Some).chain([None]).map(operation_name)
}

/// Name of an operation as in Apache's code, such as `getData`.
pub(crate) fn operation_name(op: Option<Op>) -> String {
    let Some(op) = op else {
        return "unknown".to_owned();
    };
    let name = format!("{op:?}");
    name[..1].to_lowercase() + &name[1..]
}
