//! Removes the nodes of holds and waits that ended.
//!
//! A delete that is sent once and forgotten may be lost in a reconnect while the session lives on, and everybody
//! behind that node would wait for ever. So one task a session deletes until the server says that the node is gone.

use std::sync::atomic::{AtomicU64, Ordering};

use bellwether_client as zk;
use bellwether_client::log;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::catch_up::caught_up;
use crate::crash_mark::Marking;
use crate::error::{Outcome, outcome};
use crate::home::Home;
use crate::own_node::look;
use crate::path::NodePath;
use crate::simple_lock::is_claim;

/// The way to the janitor of a session. The task ends when this is dropped and the work is done.
#[derive(Debug)]
pub(crate) struct Janitor {
    litter: mpsc::UnboundedSender<Litter>,
    /// How often something was given to it.
    given: AtomicU64,
    /// How much of that is done, in the order of the queue.
    done: watch::Receiver<u64>,
}

/// Something to remove. There are never more than this session has made, so the queue needs no limit of its own.
#[derive(Clone, Debug)]
pub(crate) enum Litter {
    /// A node with a name of its own.
    Node(String),
    /// The node that was created at this zxid, if it still stands at the path.
    Created(String, i64),
    /// The node at a path, if it is of this acquisition.
    Claim { path: String, acquisition: String },
    /// The node of an acquisition whose create may or may not have taken effect: its name begins so, and no other does.
    Acquisition { dir: NodePath, prefix: String },
    /// A node whose holder was about to mark its hold.
    Marked { node: String, marking: Marking },
}

impl Janitor {
    /// Starts the task. It keeps the session open until it has done its work.
    pub(crate) fn start(home: &Home, zk: zk::Client) -> Self {
        let (sender, mut receiver) = mpsc::unbounded_channel::<Litter>();
        let (tell, done) = watch::channel(0);
        home.spawn(async move {
            while let Some(litter) = receiver.recv().await {
                litter.remove(&zk).await;
                tell.send_modify(|done| *done += 1);
            }
        });
        Self {
            litter: sender,
            given: AtomicU64::new(0),
            done,
        }
    }

    pub(crate) fn remove(&self, litter: Litter) {
        // Counted first: whatever stands in the queue ahead of something has then been counted before it.
        self.given.fetch_add(1, Ordering::SeqCst);
        // The task is gone only with its runtime, and then the session is too.
        let _ = self.litter.send(litter);
    }

    /// Waits until all that it was given before this call is gone, so that nobody counts what this session has given up.
    pub(crate) async fn swept(&self) {
        let given = self.given.load(Ordering::SeqCst);
        // Gone with its runtime: there is no session left that a node could belong to.
        let _ = self.done.clone().wait_for(|&done| done >= given).await;
    }
}

impl Litter {
    /// Tries until it is gone. While there is no connection, the next request waits in the client: this does not spin.
    async fn remove(&self, zk: &zk::Client) {
        loop {
            let removed = match self {
                Self::Node(path) => delete(zk, path).await,
                Self::Created(path, czxid) => {
                    match caught_up(zk, path, || look(zk, path, *czxid)).await {
                        Ok(()) => delete(zk, path).await,
                        Err(zk::Error::NO_NODE) => Ok(()),
                        Err(error) => Err(error),
                    }
                }
                Self::Claim { path, acquisition } => {
                    match caught_up(zk, path, || zk.get(path)).await {
                        Ok((data, _)) if is_claim(&data, acquisition) => delete(zk, path).await,
                        Ok(_) | Err(zk::Error::NO_NODE) => Ok(()),
                        Err(error) => Err(error),
                    }
                }
                Self::Acquisition { dir, prefix } => remove_acquisition(zk, dir, prefix).await,
                Self::Marked { node, marking } => marking.undo(zk, node).await,
            };
            match removed {
                Ok(()) => return,
                Err(error) => match outcome(&error) {
                    Outcome::Unknown => {}
                    Outcome::SessionEnded => return,
                    Outcome::Refused => {
                        let litter = self.clone();
                        return log::emit(move || {
                            warn!(?litter, %error, "node stays until the session ends");
                        });
                    }
                },
            }
        }
    }
}

async fn delete(zk: &zk::Client, path: &str) -> Result<(), zk::Error> {
    match zk.delete(path, None).await {
        Err(zk::Error::NO_NODE) => Ok(()),
        result => result,
    }
}

async fn remove_acquisition(
    zk: &zk::Client,
    dir: &NodePath,
    prefix: &str,
) -> Result<(), zk::Error> {
    let list = || zk.children(dir.as_str());
    let children = match caught_up(zk, dir.as_str(), list).await {
        Err(zk::Error::NO_NODE) => return Ok(()),
        children => children?,
    };
    for name in children.iter().filter(|name| name.starts_with(prefix)) {
        delete(zk, &dir.child(name)).await?;
    }
    Ok(())
}
