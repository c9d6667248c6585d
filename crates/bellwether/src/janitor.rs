//! Removes the nodes of holds and waits that ended.
//!
//! A delete that is sent once and forgotten may be lost in a reconnect while the session lives on, and everybody
//! behind that node would wait for ever. So one task a session deletes until the server says that the node is gone.

use tokio::sync::mpsc;
use tracing::warn;
use zookeeper_client as zk;

use crate::contender::Name;
use crate::error::{Outcome, outcome};
use crate::path::NodePath;

/// The way to the janitor of a session. The task ends when the last of these is dropped and the work is done.
#[derive(Clone, Debug)]
pub(crate) struct Janitor(mpsc::UnboundedSender<Litter>);

/// Something to remove. There are never more than this session has made, so the queue needs no limit of its own.
#[derive(Debug)]
pub(crate) enum Litter {
    /// A node.
    Node(String),
    /// The node of an acquisition whose create may or may not have taken effect.
    Acquisition { dir: NodePath, id: u64 },
}

impl Janitor {
    /// Starts the task on the current runtime. It keeps the session open until it has done its work.
    pub(crate) fn start(client: zk::Client) -> Self {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(litter) = receiver.recv().await {
                match litter {
                    Litter::Node(path) => remove(&client, &path).await,
                    Litter::Acquisition { dir, id } => remove_acquisition(&client, &dir, id).await,
                }
            }
        });
        Self(sender)
    }

    pub(crate) fn remove(&self, litter: Litter) {
        // The task is gone only with its runtime, and then the session is too.
        let _ = self.0.send(litter);
    }
}

async fn remove(client: &zk::Client, path: &str) {
    loop {
        // Harmless twice: the name holds an id that no other acquisition has.
        match client.delete(path, None).await {
            Ok(()) | Err(zk::Error::NoNode) => return,
            // The next request waits in the client until there is a connection again, so this does not spin.
            Err(error) if outcome(&error) == Outcome::Unknown => {}
            Err(error) if outcome(&error) == Outcome::SessionEnded => return,
            Err(error) => return warn!(path, %error, "node stays until the session ends"),
        }
    }
}

async fn remove_acquisition(client: &zk::Client, dir: &NodePath, id: u64) {
    loop {
        match client.list_children(dir.as_str()).await {
            Ok(names) => {
                for name in names
                    .iter()
                    .filter_map(|name| Name::parse(name))
                    .filter(|name| name.id == id)
                {
                    remove(client, &dir.child(name)).await;
                }
                return;
            }
            Err(error) if outcome(&error) == Outcome::Unknown => {}
            Err(_) => return,
        }
    }
}
