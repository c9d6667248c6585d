//! Everything that a connection needs of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize};

use crate::clock::Clock;
use crate::config::Config;
use crate::connections::Connections;
use crate::pipeline::Submit;
use crate::publish::Published;
use crate::session::SessionTable;
use crate::stats::ServerStats;

/// The parts of a running server, shared by its connections.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) sessions: Arc<SessionTable>,
    pub(crate) published: Arc<Published>,
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) submit: Submit,
    /// The longest frame that is read. A test may lower it while the server runs.
    pub(crate) frame_bytes_max: AtomicUsize,
    /// What `stmk` sets and `gtmk` shows; it has no other effect.
    pub(crate) trace_mask: AtomicI64,
}
