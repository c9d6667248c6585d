//! Ways to make things happen that tests otherwise wait for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::reaper;
use crate::writer::Submission;

/// A hand on a running server, for tests.
#[derive(Debug, Clone)]
pub struct Hooks {
    engine: Arc<Engine>,
}

impl Hooks {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Ends a session as if its time were over; false if there is none.
    pub fn expire_session(&self, id: i64) -> bool {
        match self.engine.sessions.get(id) {
            Some(session) if session.end() => self
                .engine
                .submit
                .submit(Submission::ExpireSession { session }),
            _ => false,
        }
    }

    /// Sets how many children `path` ever had: the next sequence number there. False if there is no
    /// such node. It is not logged, and so not found again after a restart from files.
    pub async fn set_child_counter(&self, path: impl Into<String>, count: i32) -> bool {
        let (done, set) = oneshot::channel();
        let submission = Submission::SetChildCounter {
            path: path.into(),
            count,
            done,
        };
        self.engine.submit.submit(submission) && set.await.unwrap_or(false)
    }

    /// Looks for containers and nodes to delete now, not at the next interval.
    pub fn reap_now(&self) {
        reaper::reap(&self.engine);
    }

    /// Changes the longest frame that is read.
    pub fn set_frame_bytes_max(&self, bytes: usize) {
        self.engine.frame_bytes_max.store(bytes, Relaxed);
    }

    /// How many watches there are; a persistent one counts twice, for data and for children.
    pub fn watches(&self) -> usize {
        self.engine.published.watch_count()
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.engine.sessions.len()
    }

    /// How many requests wait for their answer.
    pub fn outstanding(&self) -> u64 {
        self.engine.stats.outstanding.load(Relaxed)
    }

    /// The password of the session `id`, open or not: what a client could compute.
    pub fn session_password(&self, id: i64) -> [u8; 16] {
        self.engine.sessions.password_of(id)
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.engine.connections.len()
    }
}
