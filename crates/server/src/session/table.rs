//! All sessions, open or about to be.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::expiry::deadline_ms;
use super::ids;
use super::password::{Password, Passwords};
use super::session::Session;
use crate::clock::Clock;

/// Finds sessions by id, and assigns new ids.
#[derive(Debug)]
pub(crate) struct SessionTable {
    clock: Clock,
    tick_ms: i64,
    next_id: AtomicI64,
    passwords: Passwords,
    sessions: Mutex<HashMap<i64, Arc<Session>>>,
}

impl SessionTable {
    /// A table with the sessions of the previous run, each with a fresh timeout.
    pub(crate) fn new(
        clock: Clock,
        tick_ms: i64,
        wall_ms: i64,
        passwords: Passwords,
        earlier: impl Iterator<Item = (i64, i32)>,
    ) -> Self {
        let now_ms = clock.now_ms();
        let sessions: HashMap<_, _> = earlier
            .map(|(id, timeout_ms)| {
                let deadline_ms = deadline_ms(now_ms, timeout_ms, tick_ms);
                let session = Session::new(id, timeout_ms, deadline_ms);
                (id, Arc::new(session))
            })
            .collect();
        let next_id = ids::first(wall_ms, sessions.keys().copied());
        Self {
            clock,
            tick_ms,
            next_id: AtomicI64::new(next_id),
            passwords,
            sessions: Mutex::new(sessions),
        }
    }

    /// Creates a session for `user` of the Unix socket, or for a client of the network. Returns its password as well. It counts as open once
    /// its transaction is published.
    pub(crate) fn open(&self, timeout_ms: i32, user: Option<u32>) -> (Arc<Session>, Password) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let deadline_ms = self.deadline_ms(timeout_ms);
        let session = Arc::new(Session::new(id, timeout_ms, deadline_ms));
        session.own(user);
        self.lock().insert(id, session.clone());
        (session, self.passwords.of(id, user))
    }

    /// The session `id`, if `user` may resume it with the password `given`, and the password to use next time.
    pub(crate) fn resume(
        &self,
        id: i64,
        user: Option<u32>,
        given: &[u8],
    ) -> Option<(Arc<Session>, Password)> {
        let session = self.get(id)?;
        let (proven, password) = self.passwords.accept(id, user, given)?;
        // A password of Apache's proves nothing about the owner.
        let owner = session.own(proven);
        let may = owner.is_none() || owner == user;
        may.then_some((session, password))
    }

    pub(crate) fn passwords(&self) -> &Passwords {
        &self.passwords
    }

    /// Number of sessions that every client can resume, because their passwords can be computed.
    pub(crate) fn computable_len(&self) -> usize {
        let sessions = self.lock();
        match self.passwords.computable() {
            None => sessions.len(),
            Some(ids) => ids.iter().filter(|id| sessions.contains_key(id)).count(),
        }
    }

    pub(crate) fn get(&self, id: i64) -> Option<Arc<Session>> {
        self.lock().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: i64) {
        self.lock().remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Records a message from the client of `session`; false if the session has ended.
    pub(crate) fn touch(&self, session: &Session) -> bool {
        session.touch(self.deadline_ms(session.timeout_ms()))
    }

    fn deadline_ms(&self, timeout_ms: i32) -> i64 {
        deadline_ms(self.clock.now_ms(), timeout_ms, self.tick_ms)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Arc<Session>>> {
        self.sessions
            .lock()
            .expect("no code panics while it holds the table")
    }
}
