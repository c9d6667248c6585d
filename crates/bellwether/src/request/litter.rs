//! Nodes of this session that are no longer needed, and how the janitor checks whether they still exist.

use bellwether_client as zk;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::node::acquisition::Claim;
use crate::node::path::NodePath;
use crate::request::synced_read::linearizable;
use crate::session::janitor::Removal;

/// A node to remove.
#[derive(Debug)]
pub(crate) enum Litter {
    /// A node with a unique name.
    Node(String),
    /// The node at a path, if this session owns it.
    Own(String),
    /// The node at a path, if it was created at this zxid.
    Created(String, i64),
    /// The node at a path, if this other node has this version: it has it only while ours is there.
    Pinned {
        path: String,
        pin: String,
        version: i32,
    },
    /// The node at a path, if it is of this acquisition.
    Claim { path: String, acquisition: String },
    /// The node of an acquisition whose create may or may not have taken effect: only its name has this prefix.
    Acquisition { dir: NodePath, prefix: String },
}

impl Removal for Litter {
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
        self.try_remove(zk).boxed()
    }
}

impl Litter {
    async fn try_remove(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        match self {
            Self::Node(path) => delete(zk, path).await,
            Self::Own(path) => delete_own(zk, path).await,
            Self::Created(path, czxid) => {
                match linearizable(zk, path, || look(zk, path, *czxid)).await {
                    Ok(()) => delete(zk, path).await,
                    Err(zk::Error::NO_NODE) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Self::Pinned { path, pin, version } => {
                let mut multi = zk.new_multi();
                multi.check(pin, Some(*version));
                multi.delete(path, None);
                match multi.commit().await.map_err(zk::Error::from) {
                    Ok(_) | Err(zk::Error::NO_NODE | zk::Error::BAD_VERSION) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Self::Claim { path, acquisition } => {
                match linearizable(zk, path, || zk.get(path)).await {
                    Ok((data, _)) if Claim::is_of(&data, acquisition) => delete(zk, path).await,
                    Ok(_) | Err(zk::Error::NO_NODE) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Self::Acquisition { dir, prefix } => remove_acquisition(zk, dir, prefix).await,
        }
    }
}

/// Deletes a node, which may be gone already.
pub(crate) async fn delete(zk: &zk::Client, path: &str) -> Result<(), zk::Error> {
    match zk.delete(path, None).await {
        Err(zk::Error::NO_NODE) => Ok(()),
        result => result,
    }
}

/// Deletes a node if this session owns it.
async fn delete_own(zk: &zk::Client, path: &str) -> Result<(), zk::Error> {
    match zk.exists(path).await? {
        Some(stat) if stat.ephemeral_owner == zk.session_id() => delete(zk, path).await,
        Some(_) | None => Ok(()),
    }
}

/// `NoNode` unless the node at the path was created at this zxid.
pub(crate) async fn look(zk: &zk::Client, path: &str, czxid: i64) -> Result<(), zk::Error> {
    match zk.exists(path).await? {
        Some(stat) if stat.czxid == czxid => Ok(()),
        Some(_) | None => Err(zk::Error::NO_NODE),
    }
}

async fn remove_acquisition(
    zk: &zk::Client,
    dir: &NodePath,
    prefix: &str,
) -> Result<(), zk::Error> {
    let list = || zk.children(dir.as_str());
    let children = match linearizable(zk, dir.as_str(), list).await {
        Err(zk::Error::NO_NODE) => return Ok(()),
        children => children?,
    };
    for name in children.iter().filter(|name| name.starts_with(prefix)) {
        delete_own(zk, &dir.child(name)).await?;
    }
    Ok(())
}
