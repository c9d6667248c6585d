//! The parts of the server that connections use.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize};

use crate::audit::Audit;
use crate::client::Connections;
use crate::client::sasl::Users;
use crate::clock::Clock;
use crate::config::Config;
use crate::publish::Published;
use crate::session::SessionTable;
use crate::stats::ServerStats;
use crate::writer::Submit;

/// The parts of a running server, shared by its connections.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) sessions: Arc<SessionTable>,
    pub(crate) published: Arc<Published>,
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) audit: Option<Arc<Audit>>,
    /// SASL users, if configured.
    pub(crate) sasl_users: Option<Users>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) submit: Submit,
    /// Maximum frame length. A test may lower it while the server runs.
    pub(crate) frame_bytes_max: AtomicUsize,
    /// Set by `stmk`, shown by `gtmk`; it has no other effect.
    pub(crate) trace_mask: AtomicI64,
}
