//! Member names that this session owns.
//!
//! The servers know which session created a node, but not which member within the session. So a session records which member owns which
//! path: each path has one owner, and a node of this session at the path belongs to that owner.

use std::collections::BTreeSet;

use tokio::sync::watch;

use crate::session::open_session::Session;

/// The paths that members of one session own or want to restore.
#[derive(Debug, Default)]
pub(crate) struct MemberNames(watch::Sender<BTreeSet<String>>);

impl MemberNames {
    fn insert(&self, path: &str) -> bool {
        self.0
            .send_if_modified(|paths| paths.insert(path.to_owned()))
    }

    fn remove(&self, path: &str) {
        self.0.send_modify(|paths| drop(paths.take(path)));
    }

    /// Whether a member of this session owns the path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.0.borrow().contains(path)
    }

    /// Waits until no member of this session owns the path.
    async fn freed(&self, path: &str) {
        let mut paths = self.0.subscribe();
        // The sender is in the session, which outlives this.
        let _ = paths.wait_for(|paths| !paths.contains(path)).await;
    }
}

/// The right to one path, until this is dropped.
#[derive(Debug)]
pub(crate) struct NameReservation {
    session: Session,
    path: String,
}

impl NameReservation {
    /// `None` if another member of this session has it.
    pub(crate) fn take(session: &Session, path: &str) -> Option<Self> {
        session.member_names().insert(path).then(|| Self {
            session: session.clone(),
            path: path.to_owned(),
        })
    }

    /// Waits until no other member of this session has it.
    pub(crate) async fn wait(session: &Session, path: &str) -> Self {
        loop {
            if let Some(reservation) = Self::take(session, path) {
                return reservation;
            }
            session.member_names().freed(path).await;
        }
    }
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        self.session.member_names().remove(&self.path);
    }
}
