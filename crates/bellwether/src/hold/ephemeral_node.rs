//! An ephemeral node of this session that represents a place in line or a hold.

use std::fmt;
use std::sync::Arc;

use bellwether_client as zk;

use crate::hold::crash_mark::{Marked, Marking, Parting};
use crate::node::NodePath;
use crate::node::data::{NodeData, Revocation, Who};
use crate::request::receipts::Receipts;
use crate::session::cleaner::{Is, Leftover, delete_pinned, delete_receipted, find};
use crate::session::retry::{NodeEvent, Retry};
use crate::session::{Reserved, Session};

/// A value that is dropped with the node.
pub(crate) type Companion = Arc<dyn fmt::Debug + Send + Sync>;

/// A node that this process created. When it is dropped, the cleaner deletes it.
#[derive(Debug)]
pub(crate) struct EphemeralNode {
    session: Session,
    /// `None` once it is known to be gone.
    path: Option<String>,
    czxid: i64,
    naming: Naming,
    /// Dropped with this, when the node is deleted or given to the cleaner.
    companions: Vec<Companion>,
    _reserved: Reserved,
}

/// The uniqueness of the path of a node: whether it names the node for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The name holds an id that no other acquisition has: a deletion is idempotent, and a check of the path proves
    /// that this very node is there.
    Unique,
    /// After this node is gone, another client may create one at the same path. This other node, whose name is unique, was created
    /// together with ours, and is deleted together with it.
    Receipted { receipt: String },
    /// Others may create a node at the same path. This other node has this version only while ours is there.
    Pinned { path: String, version: i32 },
}

/// The outcome of a removal.
#[derive(Debug)]
pub(crate) enum Removal {
    Done,
    /// Another client had deleted it before.
    WasGone,
    SessionEnded,
    Refused(zk::Error),
}

impl EphemeralNode {
    pub(crate) fn new(session: &Session, path: String, czxid: i64, naming: Naming) -> Self {
        Self {
            _reserved: session.ephemeral_quota().take(path.len()),
            session: session.clone(),
            path: Some(path),
            czxid,
            naming,
            companions: Vec::new(),
        }
    }

    /// Keeps a value until the node is deleted or given to the cleaner.
    pub(crate) fn accompany(&mut self, companion: Companion) {
        self.companions.push(companion);
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
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

    /// Receipts beside the node.
    pub(crate) fn new_receipts(&self) -> Receipts {
        let path = NodePath::parse(self.path()).expect("there is a node at this path");
        let access = self.session.access().clone();
        Receipts::new(&self.session, path.directory(), access)
    }

    /// Deletes the node, and in the same multi changes the crash mark as `parting` says. Waits for the acknowledgement, over any number of
    /// reconnects.
    pub(crate) async fn remove(mut self, parting: &Parting) -> Removal {
        let mut retry = Retry::unlimited();
        let mut was_gone;
        let removal = loop {
            let removed = self.try_remove(parting).await;
            was_gone = removed == Err(zk::Error::NO_NODE);
            let error = match removed {
                Ok(()) => break Removal::Done,
                // Our own earlier request may have done it.
                Err(zk::Error::NO_NODE) if retry.in_doubt() => break Removal::Done,
                Err(zk::Error::NO_NODE) => break Removal::WasGone,
                Err(zk::Error::SessionEnded(_)) => break Removal::SessionEnded,
                Err(error) => error,
            };
            if let Err(refused) = retry.again(error) {
                return Removal::Refused(refused);
            }
        };
        if was_gone && let Naming::Receipted { receipt } = &self.naming {
            // Another client has deleted the node alone.
            let reserved = self.session.ephemeral_quota().take(receipt.len());
            let leftover = Leftover::Node(receipt.clone());
            self.session.cleaner().remove_later(leftover, reserved);
        }
        self.path = None;
        removal
    }

    /// Sends the deletion once.
    async fn try_remove(&self, parting: &Parting) -> Result<(), zk::Error> {
        let (zk, path) = (self.session.zk(), self.path());
        match &self.naming {
            Naming::Unique => parting.delete(zk, path).await,
            Naming::Receipted { receipt } => {
                let is = Is::Created(self.czxid);
                // Only the deletion puts the outcome in doubt.
                let found = Retry::unlimited().answer(|| find(zk, path, &is));
                found.await?;
                delete_receipted(zk, path, receipt).await
            }
            Naming::Pinned { path: pin, version } => delete_pinned(zk, path, pin, *version).await,
        }
    }

    /// Changes the data of the node; see [`update`].
    pub(crate) async fn update(
        &self,
        known: KnownData,
        parting: &Parting,
        word: impl Fn(&mut NodeData),
    ) -> Result<KnownData, zk::Error> {
        update(self.session.zk(), self.path(), known, parting, word).await
    }

    /// Gives the node to the cleaner, together with a mark that was or may have been written for it.
    pub(crate) fn undo(mut self, marking: Marking) {
        if let Some(node) = self.path.take() {
            self.session.cleaner().remove(Marked { node, marking });
        }
    }

    /// Gives up the ownership of the node without deleting it.
    pub(crate) fn forget(mut self) -> Option<String> {
        self.path.take()
    }
}

impl Drop for EphemeralNode {
    fn drop(&mut self) {
        if self.session.is_forked() {
            // The parent has it. Its companions are not deleted either.
            std::mem::forget(std::mem::take(&mut self.companions));
            return;
        }
        if let Some(path) = self.path.take() {
            // A delete fired and forgotten may be lost in a reconnect while the session lives on, and all contenders behind it would wait
            // for ever: the cleaner deletes until NoNode.
            let leftover = match std::mem::replace(&mut self.naming, Naming::Unique) {
                Naming::Unique => Leftover::Node(path),
                Naming::Receipted { receipt } => Leftover::Receipted { path, receipt },
                Naming::Pinned { path: pin, version } => Leftover::Pinned { path, pin, version },
            };
            self.session.cleaner().remove(leftover);
        }
    }
}

/// A watch on the own node, and the request to its holder that was there when the watch was set.
#[derive(Debug)]
pub(crate) struct OwnWatch {
    pub(crate) event: NodeEvent,
    pub(crate) asked: Option<Revocation>,
}

impl OwnWatch {
    pub(crate) fn of(data: &[u8], watch: zk::Watch) -> Self {
        Self {
            event: NodeEvent::of(watch),
            asked: Revocation::from_data(data),
        }
    }
}

/// The data of a node as this end last saw or wrote it.
#[derive(Clone, Debug)]
pub(crate) struct KnownData {
    data: NodeData,
    version: i32,
}

impl KnownData {
    /// Returns the data of a node as it was created. Most of the time no other client has written to it since.
    pub(crate) fn created_by(who: &Who) -> Self {
        Self {
            data: NodeData::of(who, b""),
            version: 0,
        }
    }
}

/// Changes the data of the node, keeps what other clients wrote there, and clears the crash mark in the same multi if `parting` says so.
/// Returns the new data.
///
/// Retries until there is an answer. The change is idempotent, and the version tells a lost reply from a write by another client.
pub(crate) async fn update(
    zk: &zk::Client,
    node: &str,
    mut known: KnownData,
    parting: &Parting,
    word: impl Fn(&mut NodeData),
) -> Result<KnownData, zk::Error> {
    let who = known.data.who.clone();
    let mut retry = Retry::unlimited();
    loop {
        let mut after = known.data.clone();
        word(&mut after);
        // Written by an earlier try whose reply was lost.
        if retry.in_doubt() && after == known.data {
            return Ok(known);
        }
        let data = after.to_data();
        match parting.rewrite(zk, node, &data, known.version).await {
            Ok(()) => {
                return Ok(KnownData {
                    data: after,
                    version: known.version.wrapping_add(1),
                });
            }
            Err(zk::Error::BAD_VERSION) => {}
            Err(error) => retry.again(error)?,
        }
        let (data, stat) = Retry::unlimited().answer(|| zk.get(node)).await?;
        known = KnownData {
            data: NodeData::of(&who, &data),
            version: stat.version,
        };
    }
}
