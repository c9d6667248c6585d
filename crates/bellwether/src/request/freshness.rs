//! Whether a copy of data on the servers is up to date.

use std::sync::{Mutex, PoisonError};

use bellwether_client as zk;
use tokio::sync::watch;

use crate::session::open_session::Session;

/// Up to date as long as the session of the last look has a connection: then each change is announced.
#[derive(Debug, Default)]
pub(crate) struct Freshness(Mutex<Option<watch::Receiver<zk::SessionState>>>);

impl Freshness {
    /// The copy includes every change that this session has seen.
    pub(crate) fn up_to_date(&self, session: &Session) {
        self.set(Some(session.zk().states()));
    }

    /// A change was missed, or the data has to be read again.
    pub(crate) fn outdated(&self) {
        self.set(None);
    }

    pub(crate) fn is_stale(&self) -> bool {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = session.as_ref().map(|session| *session.borrow());
        state != Some(zk::SessionState::Connected)
    }

    fn set(&self, session: Option<watch::Receiver<zk::SessionState>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}
