//! The end of a hold: its node and its crash mark change in one multi.

use bellwether_client as zk;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::hold::crash_record::{Crash, HELD, Previous, names};
use crate::node::NodePath;
use crate::session::cleaner::{Cleanup, delete};
use crate::session::retry::read_linearizable;

/// What is changed in one multi with the deletion of the own node.
#[derive(Debug)]
pub(crate) enum Parting {
    /// Nothing.
    Plain,
    /// The crash mark is deleted, or restored to what it was before.
    Cleared(Marking),
}

impl Parting {
    pub(crate) async fn delete(&self, zk: &zk::Client, node: &str) -> Result<(), zk::Error> {
        match self {
            Self::Plain => zk.delete(node, None).await,
            Self::Cleared(marking) => {
                let change = |multi: &mut zk::Multi<'_>| multi.delete(node, None);
                marking.restore_with(zk, change).await
            }
        }
    }

    /// Writes the node instead of deleting it: an exclusive hold ends, and continues as a shared hold.
    pub(crate) async fn rewrite(
        &self,
        zk: &zk::Client,
        node: &str,
        data: &[u8],
        version: i32,
    ) -> Result<(), zk::Error> {
        match self {
            Self::Plain => zk.set(node, data, Some(version)).await.map(drop),
            Self::Cleared(marking) => {
                let change = |multi: &mut zk::Multi<'_>| multi.set(node, data, Some(version));
                marking.restore_with(zk, change).await
            }
        }
    }
}

/// A crash mark that was or may have been written, and the mark that was there before.
#[derive(Clone, Debug)]
pub(crate) struct Marking {
    pub(super) path: String,
    pub(super) before: Option<Vec<u8>>,
}

impl Marking {
    pub(crate) fn of(dir: &NodePath) -> Self {
        Self {
            path: dir.child(HELD),
            before: None,
        }
    }

    pub(super) fn previous(&self) -> Previous {
        match &self.before {
            Some(data) => Previous::Crashed(Crash::from_mark(data)),
            None => Previous::Clean,
        }
    }

    /// Changes the node and restores the mark in one multi; the node alone if another client has cleared the mark.
    async fn restore_with(
        &self,
        zk: &zk::Client,
        change: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<(), zk::Error> {
        let mut both = zk.new_multi();
        change(&mut both);
        self.add_restore(&mut both, None);
        match both.commit().await {
            Err(zk::MultiError::Refused {
                index: 1,
                code: zk::ErrorCode::NoNode,
            }) => {
                let mut alone = zk.new_multi();
                change(&mut alone);
                Ok(alone.commit().await.map(drop)?)
            }
            done => Ok(done.map(drop)?),
        }
    }

    /// Restores the mark and deletes the node, as if the hold had never existed.
    async fn undo(&self, zk: &zk::Client, node: &str) -> Result<(), zk::Error> {
        // A lagging server may not show our mark yet, and the mark would stay and report a crash that never happened.
        let version = match read_linearizable(zk, &self.path, || zk.get(&self.path)).await {
            Ok((data, stat)) if names(&data, node) => stat.version,
            Ok(_) | Err(zk::Error::NO_NODE) => {
                return delete(zk, node).await;
            }
            Err(error) => return Err(error),
        };
        let mut writer = zk.new_multi();
        self.add_restore(&mut writer, Some(version));
        writer.delete(node, None);
        match writer.commit().await {
            // Another client deleted the node, and the mark is still ours.
            Err(zk::MultiError::Refused {
                index: 1,
                code: zk::ErrorCode::NoNode,
            }) => {
                let mut writer = zk.new_multi();
                self.add_restore(&mut writer, Some(version));
                writer.commit().await?;
            }
            committed => drop(committed?),
        }
        Ok(())
    }

    fn add_restore(&self, writer: &mut zk::Multi<'_>, version: Option<i32>) {
        match &self.before {
            Some(before) => writer.set(&self.path, before, version),
            None => writer.delete(&self.path, version),
        };
    }
}

/// A node whose holder was about to mark its hold.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) node: String,
    pub(crate) marking: Marking,
}

impl Cleanup for Marked {
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
        self.marking.undo(zk, &self.node).boxed()
    }
}
