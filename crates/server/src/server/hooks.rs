//! Test hooks, which trigger what tests would otherwise wait for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;

use super::reaper;
use crate::engine::Engine;
use crate::writer::Submission;

/// Controls a running server from a test.
#[derive(Debug, Clone)]
pub struct Hooks {
    engine: Arc<Engine>,
}

impl Hooks {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Expires a session now. Returns false if there is no such session.
    pub fn expire_session(&self, id: i64) -> bool {
        match self.engine.sessions.get(id) {
            Some(session) if session.end() => self
                .engine
                .submit
                .submit(Submission::ExpireSession { session }),
            _ => false,
        }
    }

    /// Sets the child counter of `path`, which is its next sequence number. Returns false if there is no such node. The change is not
    /// logged: a restart from files loses it.
    pub async fn set_child_counter(&self, path: impl Into<String>, count: i32) -> bool {
        let (done, set) = oneshot::channel();
        let submission = Submission::SetChildCounter {
            path: path.into(),
            count,
            done,
        };
        self.engine.submit.submit(submission) && set.await.unwrap_or(false)
    }

    /// Deletes empty containers and outlived nodes now, not at the next interval.
    pub fn reap_now(&self) {
        reaper::reap(&self.engine);
    }

    /// Changes the maximum frame length.
    pub fn set_frame_bytes_max(&self, bytes: usize) {
        self.engine.frame_bytes_max.store(bytes, Relaxed);
    }

    /// Number of watches. A persistent watch counts twice, for data and for children.
    pub fn watches(&self) -> usize {
        self.engine.published.watch_count()
    }

    /// Number of open sessions.
    pub fn sessions(&self) -> usize {
        self.engine.sessions.len()
    }

    /// Number of requests not yet answered.
    pub fn outstanding(&self) -> u64 {
        self.engine.stats.outstanding.load(Relaxed)
    }

    /// Password that the session `id`, open or not, has if a client of the network opens it.
    pub fn session_password(&self, id: i64) -> [u8; 16] {
        self.engine.sessions.passwords().of(id, None)
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.engine.connections.len()
    }

    /// Number of connections that have no session yet.
    pub fn handshakes(&self) -> usize {
        self.engine.connections.newcomers()
    }
}
