//! Watches over a hold while it is held: the own node, and the session that keeps it.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, timeout_at};
use tracing::warn;
use zookeeper_client as zk;

use crate::contender::{NodeEvent, node_event};
use crate::error::{Outcome, outcome};
use crate::session::Client;

/// The lost signal of one hold.
#[derive(Debug)]
pub(crate) struct Hold {
    lost: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Hold {
    /// Begins to watch. `armed` is a watch on the node if there is one already.
    pub(crate) fn start(client: &Client, node: String, armed: Option<NodeEvent>) -> Self {
        let (sender, lost) = watch::channel(false);
        let zk = client.zk().clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = node_gone(&zk, &node, armed) => {}
                () = session_in_danger(zk.state_watcher(), patience(zk.session_timeout())) => {}
            }
            sender.send_replace(true);
        });
        Self { lost, task }
    }

    /// Resolves when the hold can no longer be relied on.
    pub(crate) async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error says that the task is gone without a word: with its runtime, and the session with it.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    pub(crate) fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.task.is_finished()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How long after the connection is known to be lost a hold is still relied on.
///
/// The server keeps the session for its timeout T after it last heard from us. The client finds out about a silent
/// connection after 2/5 T, and looks every T/20; T/10 is margin for the way of the last request.
fn patience(session_timeout: Duration) -> Duration {
    session_timeout * 9 / 20
}

async fn node_gone(zk: &zk::Client, node: &str, mut armed: Option<NodeEvent>) {
    loop {
        let event = match armed.take() {
            Some(event) => event,
            None => match zk.get_and_watch_data(node).await {
                Ok((_, _, watch)) => node_event(watch),
                // The next request waits in the client until there is a connection again, so this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => continue,
                Err(zk::Error::NoNode) => return,
                Err(error) if outcome(&error) == Outcome::SessionEnded => return,
                Err(error) => {
                    warn!(node, %error, "cannot watch the own node: its deletion would go unseen");
                    return std::future::pending().await;
                }
            },
        };
        match event.await.event_type {
            zk::EventType::NodeDeleted | zk::EventType::Session => return,
            _ => {}
        }
    }
}

async fn session_in_danger(mut states: zk::StateWatcher, patience: Duration) {
    let mut state = states.state();
    loop {
        if state.is_terminated() {
            return;
        }
        state = if state == zk::SessionState::Disconnected {
            match timeout_at(Instant::now() + patience, states.changed()).await {
                Ok(state) => state,
                Err(_) => return,
            }
        } else {
            states.changed().await
        };
    }
}
