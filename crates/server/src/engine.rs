//! The parts of the server that connections use.

use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::audit::Audit;
use crate::client::Connections;
use crate::client::sasl::Users;
use crate::clock::Clock;
use crate::config::Config;
use crate::publish::Published;
use crate::session::SessionTable;
use crate::stats::ServerStats;
use crate::storage::{DiskRoom, DiskState};
use crate::writer::{Submit, TreeLimits};

/// The parts of a running server, shared by its connections.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The settings in force. A reload replaces them.
    pub(crate) settings: watch::Sender<Arc<Config>>,
    pub(crate) clock: Clock,
    pub(crate) sessions: Arc<SessionTable>,
    pub(crate) published: Arc<Published>,
    pub(crate) stats: Arc<ServerStats>,
    pub(crate) audit: Option<Arc<Audit>>,
    /// SASL users, if configured. A reload replaces them.
    pub(crate) sasl_users: Mutex<Option<Arc<Users>>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) submit: Submit,
    /// Room on the disk of the log.
    pub(crate) room: Arc<DiskRoom>,
    /// Maximum frame length. A test may lower it while the server runs.
    pub(crate) frame_bytes_max: AtomicUsize,
    /// Set by `stmk`, shown by `gtmk`; it has no other effect.
    pub(crate) trace_mask: AtomicI64,
}

impl Engine {
    /// The settings in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.settings.borrow().clone()
    }

    pub(crate) fn sasl_users(&self) -> Option<Arc<Users>> {
        let users = self.sasl_users.lock();
        users.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limits of the tree in force.
    pub(crate) fn tree_limits(&self) -> TreeLimits {
        TreeLimits::of(&self.settings.borrow())
    }

    /// Why writes that make the tree larger are refused at present, if they are.
    pub(crate) fn refuses_growth(&self) -> Option<&'static str> {
        let (size, limits) = (self.published.tree().size(), self.tree_limits());
        match self.room.state() {
            DiskState::Low | DiskState::Critical => Some("the disk is nearly full"),
            DiskState::Ample if size.nodes >= limits.nodes_max => {
                Some("the tree has reached its limit of nodes")
            }
            // Where no node fits, some data may.
            DiskState::Ample
                if limits.bytes_max.saturating_sub(size.bytes) < limits.bytes_max / 100 =>
            {
                Some("the tree has reached its limit of memory")
            }
            DiskState::Ample => None,
        }
    }
}
