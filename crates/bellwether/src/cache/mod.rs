//! A live copy of a subtree.

mod keeper;
mod reads;
mod tree;
mod watches;

pub use self::tree::{CacheEvent, CachedNode, Snapshot};

use std::sync::Arc;

use bellwether_client as zk;
use futures_util::stream::unfold;
use tokio::sync::{broadcast, oneshot};

use crate::cache::keeper::CacheKeeper;
use crate::cache::tree::Tree;
use crate::error::StateError;
use crate::request::{Events, Freshness, OpenNode, PersistentNode};
use crate::session::client::Client;
use crate::session::runtime::TaskGuard;
use crate::session::telemetry::call;

/// A subtree to keep a copy of.
///
/// # What it guarantees
///
/// Once changes stop, the copy equals the subtree. A node never goes back to older data, also over reconnects and sessions: the server is
/// synced before the copy is read again.
///
/// # What it does not
///
/// The copy lags behind by the delay of events. Quick changes of a node may be skipped, and nodes that changed in one transaction may be
/// seen to change one after the other. Nodes that this client may not read are left out.
///
/// # Node layout
///
/// None of its own: one persistent recursive watch. On servers before 3.9, do not set another watch on the top node of a cache through the
/// same client: one watch would end the other (ZOOKEEPER-4466). Servers before 3.6 have no such watches; there each node has two of its
/// own, and the paths together may take some 700 KiB.
///
/// # Fairness
///
/// Not applicable: no client waits for another.
///
/// # Session loss
///
/// It continues in the next session, reads everything again, and reports [`CacheEvent::Renewed`] and what has changed.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Cache, Client};
/// # use bellwether::cache::CacheEvent;
/// # use bellwether::error::StateError;
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
    node: PersistentNode,
    freshness: Arc<Freshness>,
}

impl Cache {
    /// The node at a path and everything below it. Nothing is sent, nor is the path checked, until it is opened.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self::at(PersistentNode::new(client, path.into()))
    }

    pub(crate) fn at(node: PersistentNode) -> Self {
        Self {
            node,
            freshness: Arc::default(),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// Whether the copy that is opened is up to date.
    pub(crate) fn freshness(&self) -> Arc<Freshness> {
        self.freshness.clone()
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
        call!("cache.open", self.path())
            .run(async {
                let cache = Self::at(self.node.clone());
                cache.open_through(self.node.open().await?).await
            })
            .await
    }

    /// As [`open`](Self::open), but waits until a session can be opened.
    pub(crate) async fn open_in_time(&self) -> Result<LiveTree, StateError> {
        self.open_through(self.node.open_in_time().await?).await
    }

    async fn open_through(&self, opened: OpenNode) -> Result<LiveTree, StateError> {
        let tree = Arc::new(Tree::new(self.node.path()));
        let (loaded, is_loaded) = oneshot::channel();
        let runtime = opened.session.runtime().clone();
        let keeper = CacheKeeper::new(
            self.node.clone(),
            opened,
            tree.clone(),
            self.freshness.clone(),
        );
        let live = LiveTree {
            tree,
            freshness: self.freshness.clone(),
            _keeper: runtime.spawn_guarded(keeper.keep(loaded)),
        };
        match is_loaded.await {
            Ok(Ok(())) => Ok(live),
            Ok(Err(error)) => Err(error),
            // The task is gone only with its runtime.
            Err(_) => Err(self
                .node
                .refused(zk::Error::SessionEnded(zk::SessionEnd::RuntimeGone))),
        }
    }
}

/// The copy of a subtree, kept up to date until it is dropped.
#[derive(Debug)]
pub struct LiveTree {
    tree: Arc<Tree>,
    freshness: Arc<Freshness>,
    /// Its watch goes with it.
    _keeper: TaskGuard,
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

    /// Whether the copy may be stale: there is no connection, or the changes of an outage are still being read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.freshness.is_stale()
    }

    /// Why the copy is no longer updated, if so. It is returned once.
    pub(crate) fn take_end(&self) -> Option<StateError> {
        self.tree.take_end()
    }

    /// A stream of the changes from now on.
    #[must_use]
    pub fn changes(&self) -> CacheChanges {
        CacheChanges::new(self.tree.subscribe())
    }

    /// All nodes, and a stream of the changes from then on, without a gap.
    #[must_use]
    pub fn snapshot_and_changes(&self) -> (Snapshot, CacheChanges) {
        let (snapshot, changes) = self.tree.snapshot_and_subscribe();
        (snapshot, CacheChanges::new(changes))
    }
}

/// The changes of a [`LiveTree`], in the order in which they were seen. It ends with the tree, or when the copy can no longer be updated:
/// the servers refuse, the client is closed, or the subtree is too large for single watches.
pub type CacheChanges = Events<CacheEvent>;

impl CacheChanges {
    fn new(events: broadcast::Receiver<CacheEvent>) -> Self {
        let stream = unfold(events, |mut events| async {
            match events.recv().await {
                Ok(event) => Some((event, events)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((CacheEvent::Missed, events)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        Self::from_stream(stream)
    }
}
