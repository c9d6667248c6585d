//! A live copy of a subtree.

mod keeper;
mod reads;
mod tree;
mod watches;

use bellwether_client as zk;
use std::fmt;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use tokio::sync::{broadcast, oneshot};

use crate::client::Client;
use crate::home::Running;
use crate::state::{Site, StateError, Visit};
use keeper::Keeper;
use tree::Tree;

pub use tree::{CacheEvent, CachedNode, Snapshot};

/// A subtree to keep a copy of.
///
/// # What it guarantees
///
/// Once things are quiet, the copy equals the subtree. A node never goes back to something older than what was shown of
/// it, over reconnects and sessions too: the server has to catch up with the others before the copy is read anew.
///
/// # What it does not
///
/// The copy is behind by the time that news take. States of a node that followed each other fast may be left out, and nodes that
/// changed in one transaction may be seen to change one after the other. Nodes that this client may not read are left out.
///
/// # Node layout
///
/// None of its own: one persistent recursive watch. On servers before 3.9 do not watch the top node of a cache by other
/// means through the same client: one watch would end the other (ZOOKEEPER-4466). Servers before 3.6 have no such watches;
/// there each node has two of its own, and the paths together may take some 700 KiB.
///
/// # Fairness
///
/// Nobody waits for anybody.
///
/// # Session loss
///
/// It goes on with the next session, reads everything anew, tells what has changed, and says so with
/// [`CacheEvent::Renewed`].
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Cache, CacheEvent, Client, StateError};
/// use futures_util::StreamExt;
///
/// # async fn run(client: &Client) -> Result<(), StateError> {
/// let routes = Cache::new(client, "/routes").open().await?;
/// let (snapshot, mut changes) = routes.snapshot_and_changes();
/// println!("{} routes", snapshot.len());
/// while let Some(change) = changes.next().await {
///     if let CacheEvent::Changed { path, .. } = change {
///         println!("{path} is new");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    site: Site,
}

impl Cache {
    /// The node at a path and everything below it. Nothing is sent, nor is the path checked, until it is opened.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            site: Site::new(client, path.into()),
        }
    }

    pub(crate) fn at(site: Site) -> Self {
        Self { site }
    }

    /// Reads the subtree, and keeps the copy from then on. A round trip for each level, with many nodes in one request; from then on
    /// one read for each change.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives it up.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn open(&self) -> Result<LiveTree, StateError> {
        self.open_through(self.site.visit().await?).await
    }

    /// As [`open`](Self::open), but waits until a session can be opened.
    pub(crate) async fn open_in_time(&self) -> Result<LiveTree, StateError> {
        self.open_through(self.site.visit_in_time().await?).await
    }

    async fn open_through(&self, visit: Visit) -> Result<LiveTree, StateError> {
        let tree = Arc::new(Tree::new(self.site.path()));
        let (loaded, is_loaded) = oneshot::channel();
        let home = visit.client.home().clone();
        let keeper = Keeper::new(self.site.clone(), visit, tree.clone());
        let live = LiveTree {
            tree,
            _keeper: home.run(keeper.keep(loaded)),
        };
        match is_loaded.await {
            Ok(Ok(())) => Ok(live),
            Ok(Err(error)) => Err(error),
            // The task is gone only with its runtime.
            Err(_) => Err(self
                .site
                .refused(zk::Error::SessionEnded(zk::SessionEnd::RuntimeGone))),
        }
    }
}

/// The copy of a subtree that a [`Cache`] keeps. Dropped, it is kept no longer.
#[derive(Debug)]
pub struct LiveTree {
    tree: Arc<Tree>,
    /// Its watch goes with it.
    _keeper: Running,
}

impl LiveTree {
    /// The node at a path, as it was last seen.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.tree.get(path)
    }

    /// All nodes, by their paths.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.tree.snapshot()
    }

    /// Why the copy is kept no longer, if it is not. It is told once.
    pub(crate) fn take_end(&self) -> Option<StateError> {
        self.tree.take_end()
    }

    /// What changes from now on.
    #[must_use]
    pub fn changes(&self) -> CacheChanges {
        CacheChanges::new(self.tree.subscribe())
    }

    /// All nodes, and what changes from then on: nothing falls between.
    #[must_use]
    pub fn snapshot_and_changes(&self) -> (Snapshot, CacheChanges) {
        let (snapshot, changes) = self.tree.snapshot_and_subscribe();
        (snapshot, CacheChanges::new(changes))
    }
}

/// The changes of a [`LiveTree`], in the order in which they were seen. It ends with the tree, or when the copy cannot be kept
/// any longer: the servers refuse it, or it has grown larger than can be watched one by one.
pub struct CacheChanges(BoxStream<'static, CacheEvent>);

impl CacheChanges {
    fn new(events: broadcast::Receiver<CacheEvent>) -> Self {
        let stream = unfold(events, |mut events| async {
            match events.recv().await {
                Ok(event) => Some((event, events)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((CacheEvent::Missed, events)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        Self(stream.boxed())
    }
}

impl Stream for CacheChanges {
    type Item = CacheEvent;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<CacheEvent>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for CacheChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheChanges").finish_non_exhaustive()
    }
}
