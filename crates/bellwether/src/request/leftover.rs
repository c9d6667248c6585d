//! Nodes of this session that are no longer needed, and how the cleaner checks whether they still exist.

use bellwether_client as zk;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::node::operation_id::ClaimData;
use crate::node::path::NodePath;
use crate::request::synced_read::read_linearizable;
use crate::session::cleaner::Cleanup;
use crate::session::open_session::WeakSession;

/// A node to remove.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// A node with a unique name.
    Node(String),
    /// The node at a path, if this session owns it.
    Own(String),
    /// The node at a path, if it is still the same.
    At(String, Is),
    /// The node of a member that has left, if the session owns it and has no member of that name now.
    Departed { path: String, session: WeakSession },
    /// The node at a path, if another node has this version, which it has only as long as ours exists.
    Pinned {
        path: String,
        pin: String,
        version: i32,
    },
    /// The claim at a path, if it is of this acquisition, which the item had this version for. The next claim changes the version, so that
    /// a late deletion does not hit it.
    Claim {
        path: String,
        acquisition: Is,
        item: String,
        version: i32,
    },
    /// The node at a path that was created together with a receipt, if it is still that node.
    Receipted { path: String, receipt: String },
    /// The nodes of an acquisition, whose creates may or may not have taken effect: only their names have this prefix. One of them may be
    /// in use.
    Acquisition {
        dir: NodePath,
        prefix: String,
        except: Option<String>,
    },
}

/// What tells a node from others that were at its path before or after it.
#[derive(Debug)]
pub(crate) enum Is {
    /// It was created at this zxid.
    Created(i64),
    /// Its data has the id of this acquisition.
    Of(String),
}

impl Cleanup for Leftover {
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
        self.try_remove(zk).boxed()
    }
}

impl Leftover {
    async fn try_remove(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        match self {
            Self::Node(path) => delete(zk, path).await,
            Self::Own(path) => delete_own(zk, path).await,
            Self::Departed { path, session } => match session.upgrade() {
                Some(session) if !session.member_names().contains(path) => {
                    delete_own(zk, path).await
                }
                _ => Ok(()),
            },
            Self::At(path, is) => match find(zk, path, is).await {
                Ok(()) => delete(zk, path).await,
                Err(zk::Error::NO_NODE) => Ok(()),
                Err(error) => Err(error),
            },
            Self::Pinned { path, pin, version } => delete_pinned(zk, path, pin, *version).await,
            Self::Claim {
                path,
                acquisition,
                item,
                version,
            } => match find(zk, path, acquisition).await {
                Ok(()) => delete_pinned(zk, path, item, *version).await,
                Err(zk::Error::NO_NODE) => Ok(()),
                Err(error) => Err(error),
            },
            Self::Receipted { path, receipt } => remove_receipted(zk, path, receipt).await,
            Self::Acquisition {
                dir,
                prefix,
                except,
            } => remove_acquisition(zk, dir, prefix, except.as_deref()).await,
        }
    }
}

/// Deletes a node, which may be gone already.
pub(crate) async fn delete(zk: &zk::Client, path: &str) -> Result<(), zk::Error> {
    gone_is_done(zk.delete(path, None).await)
}

fn gone_is_done(deleted: Result<(), zk::Error>) -> Result<(), zk::Error> {
    match deleted {
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

/// Deletes a node, if another node has this version.
pub(crate) async fn delete_pinned(
    zk: &zk::Client,
    path: &str,
    pin: &str,
    version: i32,
) -> Result<(), zk::Error> {
    let mut multi = zk.new_multi();
    multi.check(pin, Some(version));
    multi.delete(path, None);
    match multi.commit().await.map_err(zk::Error::from) {
        Ok(_) | Err(zk::Error::NO_NODE | zk::Error::BAD_VERSION) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes a node and the receipt that was created together with it. A request that arrives late finds no receipt, and leaves the node of
/// the next client. `NoNode` if one of them is gone.
pub(crate) async fn delete_receipted(
    zk: &zk::Client,
    path: &str,
    receipt: &str,
) -> Result<(), zk::Error> {
    let mut multi = zk.new_multi();
    multi.delete(receipt, None);
    multi.delete(path, None);
    Ok(multi.commit().await.map(drop)?)
}

/// `NoNode` unless this very node is at the path. A lagging server would still show our node where the next holder's is.
pub(crate) async fn find(zk: &zk::Client, path: &str, is: &Is) -> Result<(), zk::Error> {
    let is_there = match is {
        Is::Created(czxid) => {
            let found = read_linearizable(zk, path, || zk.exists(path)).await?;
            found.is_some_and(|stat| stat.czxid == *czxid)
        }
        Is::Of(acquisition) => {
            let (data, _) = read_linearizable(zk, path, || zk.get(path)).await?;
            ClaimData::is_of(&data, acquisition)
        }
    };
    match is_there {
        true => Ok(()),
        false => Err(zk::Error::NO_NODE),
    }
}

/// Deletes a node and its receipt. One multi has created both, so their zxids tell whether the node is still the same.
async fn remove_receipted(zk: &zk::Client, path: &str, receipt: &str) -> Result<(), zk::Error> {
    let found = read_linearizable(zk, receipt, || zk.exists(receipt)).await?;
    let Some(created) = found else {
        return Ok(());
    };
    match find(zk, path, &Is::Created(created.czxid)).await {
        Ok(()) => gone_is_done(delete_receipted(zk, path, receipt).await),
        // Another client has deleted the node. The receipt alone is not deleted here: such a request, if it is late, could leave the node
        // of a late create without its receipt.
        result => gone_is_done(result),
    }
}

async fn remove_acquisition(
    zk: &zk::Client,
    dir: &NodePath,
    prefix: &str,
    except: Option<&str>,
) -> Result<(), zk::Error> {
    let list = || zk.children(dir.as_str());
    let children = match read_linearizable(zk, dir.as_str(), list).await {
        Err(zk::Error::NO_NODE) => return Ok(()),
        children => children?,
    };
    let is_wanted = |name: &&String| name.starts_with(prefix) && except != Some(name.as_str());
    for name in children.iter().filter(is_wanted) {
        delete_own(zk, &dir.child(name)).await?;
    }
    Ok(())
}
