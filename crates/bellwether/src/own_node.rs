//! An ephemeral node of this session that stands for a place or a hold.

use bellwether_client as zk;

use crate::catch_up::caught_up;
use crate::client::Client;
use crate::crash_mark::{Marking, Parting};
use crate::ephemerals::Room;
use crate::error::{Outcome, outcome};
use crate::janitor::Litter;
use crate::node_data::NodeData;
use crate::sabotage::Sabotage;
use crate::who::Who;

/// A node that is ours. Dropped, it is given to the janitor.
#[derive(Debug)]
pub(crate) struct OwnNode {
    client: Client,
    /// `None` once it is known to be gone.
    path: Option<String>,
    czxid: i64,
    naming: Naming,
    _room: Room,
}

/// Whether the path of a node names it for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The name holds an id that no other acquisition has: a deletion is harmless twice, and a check of the path proves
    /// that this very node is there.
    Unique,
    /// When this node has gone, another's may stand there: look before each deletion.
    Shared,
    /// As `Shared`, but this other node has this version only while ours is there.
    Pinned { path: String, version: i32 },
}

/// How a removal ended.
#[derive(Debug)]
pub(crate) enum Removal {
    Done,
    /// Another hand was there before.
    WasGone,
    SessionEnded,
    Refused(zk::Error),
}

impl OwnNode {
    pub(crate) fn new(client: &Client, path: String, czxid: i64, naming: Naming) -> Self {
        Self {
            _room: Room::taken(client, path.len()),
            client: client.clone(),
            path: Some(path),
            czxid,
            naming,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn path(&self) -> &str {
        self.path
            .as_deref()
            .expect("it is there until it is removed")
    }

    /// The zxid that created the node.
    pub(crate) fn czxid(&self) -> i64 {
        self.czxid
    }

    pub(crate) fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Deletes the node, and what goes with it, and waits for the acknowledgement, over any number of reconnects.
    pub(crate) async fn remove(mut self, parting: &Parting) -> Removal {
        let client = self.client.clone();
        let mut in_doubt = false;
        loop {
            let mut is_sent = false;
            let attempt = async {
                if self.naming != Naming::Unique {
                    // A server that lags would still show our node where the next holder's stands.
                    let (zk, path) = (client.zk(), self.path());
                    caught_up(zk, path, || look(zk, path, self.czxid)).await?;
                }
                is_sent = true;
                parting.delete(client.zk(), self.path()).await
            };
            let error = match attempt.await {
                Ok(()) => break,
                // Our own earlier request may have done it.
                Err(zk::Error::NO_NODE) if in_doubt => break,
                Err(error) => error,
            };
            match (outcome(&error), error) {
                (Outcome::Unknown, _) if client.is_sabotaged(Sabotage::DeleteOnce) => break,
                (Outcome::Unknown, _) => in_doubt |= is_sent,
                (Outcome::SessionEnded, _) => {
                    self.path = None;
                    return Removal::SessionEnded;
                }
                (Outcome::Refused, zk::Error::NO_NODE) => {
                    self.path = None;
                    return Removal::WasGone;
                }
                (Outcome::Refused, error) => return Removal::Refused(error),
            }
        }
        self.path = None;
        Removal::Done
    }

    /// Adds a word to the data of the node; see [`amend`].
    pub(crate) async fn amend(
        &self,
        known: Known,
        parting: &Parting,
        word: impl Fn(&mut NodeData),
    ) -> Result<Known, zk::Error> {
        amend(self.client.zk(), self.path(), known, parting, word).await
    }

    /// Gives the node to the janitor, together with a mark that was or may have been written for it.
    pub(crate) fn undo(mut self, marking: Marking) {
        if let Some(node) = self.path.take() {
            let litter = Litter::Marked { node, marking };
            self.client.janitor().remove(litter);
        }
    }

    /// Leaves the node to whoever takes it from here.
    pub(crate) fn forget(mut self) -> Option<String> {
        self.path.take()
    }
}

impl Drop for OwnNode {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            if self.client.is_sabotaged(Sabotage::DeleteOnce) {
                drop(self.client.zk().delete(&path, None));
                return;
            }
            // A delete fired and forgotten may be lost in a reconnect while the session lives on, and everyone
            // behind would wait for ever: the janitor deletes until NoNode.
            let litter = match self.naming {
                Naming::Unique => Litter::Node(path),
                Naming::Shared | Naming::Pinned { .. } => Litter::Created(path, self.czxid),
            };
            self.client.janitor().remove(litter);
        }
    }
}

/// `NoNode` unless the node at the path is the one that was created at this zxid.
pub(crate) async fn look(zk: &zk::Client, path: &str, czxid: i64) -> Result<(), zk::Error> {
    match zk.exists(path).await? {
        Some(stat) if stat.czxid == czxid => Ok(()),
        Some(_) | None => Err(zk::Error::NO_NODE),
    }
}

/// The data of a node as this end last saw or wrote it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    data: NodeData,
    version: i32,
}

impl Known {
    /// As the node was created. Most of the time nobody has written to it since.
    pub(crate) fn created_by(who: &Who) -> Self {
        Self {
            data: NodeData::of(who, b""),
            version: 0,
        }
    }
}

/// Adds a word to the data of the node, beside what others may have written there, in one step with what else ends. Sent
/// until there is an answer: the word is harmless twice. Returns what stands there now.
pub(crate) async fn amend(
    zk: &zk::Client,
    node: &str,
    mut known: Known,
    parting: &Parting,
    word: impl Fn(&mut NodeData),
) -> Result<Known, zk::Error> {
    let who = known.data.who.clone();
    let mut in_doubt = false;
    loop {
        let mut after = known.data.clone();
        word(&mut after);
        // Written by an earlier try whose reply was lost.
        if in_doubt && after == known.data {
            return Ok(known);
        }
        let data = after.to_data();
        match parting.rewrite(zk, node, &data, known.version).await {
            Ok(()) => {
                return Ok(Known {
                    data: after,
                    version: known.version.wrapping_add(1),
                });
            }
            Err(zk::Error::BAD_VERSION) => {}
            Err(error) if outcome(&error) == Outcome::Unknown => in_doubt = true,
            Err(error) => return Err(error),
        }
        known = loop {
            match zk.get(node).await {
                Ok((data, stat)) => {
                    break Known {
                        data: NodeData::of(&who, &data),
                        version: stat.version,
                    };
                }
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error),
            }
        };
    }
}
