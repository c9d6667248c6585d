//! The names that a session bears.
//!
//! The servers tell sessions apart, and not who within one has made a node. So a session notes which paths its members bear:
//! each has one bearer, and a node of this session at such a path is that bearer's.

use std::collections::BTreeSet;

use tokio::sync::watch;

use crate::client::Client;

/// The paths that members of one session bear or want back.
#[derive(Debug, Default)]
pub(crate) struct Borne(watch::Sender<BTreeSet<String>>);

impl Borne {
    fn insert(&self, path: &str) -> bool {
        self.0
            .send_if_modified(|paths| paths.insert(path.to_owned()))
    }

    fn remove(&self, path: &str) {
        self.0.send_modify(|paths| drop(paths.take(path)));
    }

    /// Waits until nobody bears a path.
    async fn freed(&self, path: &str) {
        let mut paths = self.0.subscribe();
        // The sender is in the session, which outlives this.
        let _ = paths.wait_for(|paths| !paths.contains(path)).await;
    }
}

/// The right to one path, until this is dropped.
#[derive(Debug)]
pub(crate) struct Bearing {
    client: Client,
    path: String,
}

impl Bearing {
    /// `None` if another member of this session has it.
    pub(crate) fn take(client: &Client, path: &str) -> Option<Self> {
        client.borne().insert(path).then(|| Self {
            client: client.clone(),
            path: path.to_owned(),
        })
    }

    /// Waits until no other member of this session has it.
    pub(crate) async fn wait(client: &Client, path: &str) -> Self {
        loop {
            if let Some(bearing) = Self::take(client, path) {
                return bearing;
            }
            client.borne().freed(path).await;
        }
    }
}

impl Drop for Bearing {
    fn drop(&mut self) {
        self.client.borne().remove(&self.path);
    }
}
