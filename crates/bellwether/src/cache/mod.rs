//! A live copy of a subtree, and its listeners.

mod keeper;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use bellwether_client as zk;
use futures_util::stream::unfold;
use tokio::sync::{broadcast, oneshot};

use crate::cache::keeper::CacheKeeper;
use crate::error::{ConnectError, Error, Failure};
use crate::events::Events;
use crate::node::Version;
use crate::request::{Freshness, OpenNode, PersistentNode};
use crate::session::client::{Client, SessionId};
use crate::session::lock;
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
/// # use bellwether::Error;
/// use futures_util::StreamExt;
///
/// # async fn run(client: &Client) -> Result<(), Error> {
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

    /// Returns whether the copy that is opened is up to date.
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
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `TooLarge`, `NoSession`, `Refused`.
    pub async fn open(&self) -> Result<LiveTree, Error> {
        call!("cache.open", self.path())
            .run(async {
                let cache = Self::at(self.node.clone());
                cache.open_through(self.node.open().await?).await
            })
            .await
    }

    /// Does the same as [`open`](Self::open), but waits until a session can be opened.
    pub(crate) async fn open_in_time(&self) -> Result<LiveTree, Failure> {
        self.open_through(self.node.open_in_time().await?).await
    }

    async fn open_through(&self, opened: OpenNode) -> Result<LiveTree, Failure> {
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
            Err(_) => Err(self.node.failed(ConnectError::RuntimeGone)),
        }
    }
}

/// The copy of a subtree, kept up to date until it is dropped.
#[derive(Debug)]
pub struct LiveTree {
    tree: Arc<Tree>,
    freshness: Arc<Freshness>,
    /// The task that keeps the copy up to date, with its watch.
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

    /// Returns whether the copy may be stale: there is no connection, or the changes of an outage are still being read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.freshness.is_stale()
    }

    /// Returns the reason why the copy is no longer updated, if so. It is returned once.
    pub(crate) fn take_end(&self) -> Option<Failure> {
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

/// The number of changes by which a listener may be behind before it gets [`CacheEvent::Missed`].
const CHANGES_MAX: usize = 4096;

/// All nodes of a subtree at one moment, by their paths.
pub type Snapshot = BTreeMap<Arc<str>, Arc<CachedNode>>;

/// A node as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedNode {
    /// The data.
    pub data: Vec<u8>,
    /// The version of the data.
    pub version: Version,
    /// The zxid that created the node.
    pub czxid: i64,
    /// The zxid that last set the data.
    pub mzxid: i64,
    /// The session that the node ends with; `None` if it stays.
    pub ephemeral_owner: Option<SessionId>,
}

impl CachedNode {
    fn new(data: Vec<u8>, stat: &zk::Stat) -> Self {
        Self {
            data,
            version: stat.version.into(),
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            ephemeral_owner: SessionId::of_owner(stat.ephemeral_owner),
        }
    }
}

/// A change of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "path and node are what they are called")]
pub enum CacheEvent {
    /// A node is new, or has other data.
    Changed {
        path: Arc<str>,
        node: Arc<CachedNode>,
    },
    /// A node is gone.
    Deleted { path: Arc<str> },
    /// The session has ended, and a new session keeps the copy. The changes since then follow.
    Renewed,
    /// The listener was too slow, and events were dropped. Take a snapshot.
    Missed,
}

/// The nodes, by their paths as the user knows them.
#[derive(Debug)]
struct Tree {
    root: String,
    nodes: Mutex<Snapshot>,
    telling: Mutex<Telling>,
}

/// The state of the news for listeners.
#[derive(Debug)]
enum Telling {
    Goes(broadcast::Sender<CacheEvent>),
    /// The copy is no longer updated. The reason, until a caller has taken it.
    Ended(Option<Failure>),
}

impl Tree {
    fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            nodes: Mutex::default(),
            telling: Mutex::new(Telling::Goes(broadcast::Sender::new(CHANGES_MAX))),
        }
    }

    /// The path of a node from its path below the root.
    fn path(&self, below: &str) -> String {
        format!("{}{below}", self.root)
    }

    fn get(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.nodes().get(path).cloned()
    }

    fn snapshot(&self) -> Snapshot {
        self.nodes().clone()
    }

    fn subscribe(&self) -> broadcast::Receiver<CacheEvent> {
        match &*self.telling() {
            Telling::Goes(events) => events.subscribe(),
            // Closed, since its sender is gone.
            Telling::Ended(_) => broadcast::Sender::new(1).subscribe(),
        }
    }

    /// The copy is no longer updated: listeners see the end of the stream after all earlier events.
    fn end(&self, why: Failure) {
        *self.telling() = Telling::Ended(Some(why));
    }

    /// Returns the reason why the copy is no longer updated. It is returned once.
    fn take_end(&self) -> Option<Failure> {
        match &mut *self.telling() {
            Telling::Goes(_) => None,
            Telling::Ended(why) => why.take(),
        }
    }

    fn snapshot_and_subscribe(&self) -> (Snapshot, broadcast::Receiver<CacheEvent>) {
        // Events are sent under the same lock as the change.
        let nodes = self.nodes();
        (nodes.clone(), self.subscribe())
    }

    /// Stores the data of a node, unless newer data is known.
    fn set(&self, path: &str, node: CachedNode) {
        let mut nodes = self.nodes();
        if nodes
            .get(path)
            .is_some_and(|known| known.mzxid >= node.mzxid)
        {
            return;
        }
        let (path, node) = (Arc::<str>::from(path), Arc::new(node));
        nodes.insert(path.clone(), node.clone());
        self.tell(CacheEvent::Changed { path, node });
    }

    /// Removes a node and everything below it, the lowest first.
    fn remove(&self, path: &str) {
        let mut nodes = self.nodes();
        let below: Vec<_> = range_below(&nodes, path)
            .map(|(path, _)| path.clone())
            .collect();
        for path in below.into_iter().rev() {
            nodes.remove(&path);
            self.tell(CacheEvent::Deleted { path });
        }
        if let Some((path, _)) = nodes.remove_entry(path) {
            self.tell(CacheEvent::Deleted { path });
        }
    }

    /// The names of the children of a node, as far as they are known.
    fn children(&self, path: &str) -> BTreeSet<String> {
        let nodes = self.nodes();
        let below = range_below(&nodes, path).map(|(below, _)| &below[path.len() + 1..]);
        below
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    fn tell(&self, event: CacheEvent) {
        if let Telling::Goes(events) = &*self.telling() {
            // There may be no listener.
            let _ = events.send(event);
        }
    }

    fn telling(&self) -> MutexGuard<'_, Telling> {
        lock(&self.telling)
    }

    fn nodes(&self) -> MutexGuard<'_, Snapshot> {
        lock(&self.nodes)
    }
}

fn range_below<'a>(
    nodes: &'a Snapshot,
    path: &str,
) -> impl DoubleEndedIterator<Item = (&'a Arc<str>, &'a Arc<CachedNode>)> {
    // A zero is what follows a slash.
    let (first, end) = (format!("{path}/"), format!("{path}0"));
    nodes.range::<str, _>((Bound::Included(&*first), Bound::Excluded(&*end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(mzxid: i64) -> CachedNode {
        CachedNode {
            data: mzxid.to_string().into_bytes(),
            version: 0.into(),
            czxid: 1,
            mzxid,
            ephemeral_owner: None,
        }
    }

    #[test]
    fn node_never_goes_back() {
        let tree = Tree::new("/a");
        tree.set("/a", node(5));
        let mut events = tree.subscribe();
        tree.set("/a", node(4));
        tree.set("/a", node(5));
        assert_eq!(tree.get("/a").unwrap().mzxid, 5);
        assert!(events.try_recv().is_err());
        tree.set("/a", node(6));
        assert!(matches!(events.try_recv(), Ok(CacheEvent::Changed { .. })));
    }

    #[test]
    fn removal_takes_what_is_below_and_nothing_beside() {
        let tree = Tree::new("/a");
        for path in ["/a", "/a/b", "/a/b/c", "/a/b-d", "/a/b0", "/a/bc"] {
            tree.set(path, node(1));
        }
        let children: Vec<_> = tree.children("/a").into_iter().collect();
        assert_eq!(children, ["b", "b-d", "b0", "bc"]);
        let mut events = tree.subscribe();
        tree.remove("/a/b");
        let mut gone = Vec::new();
        while let Ok(CacheEvent::Deleted { path }) = events.try_recv() {
            gone.push(path);
        }
        assert_eq!(gone, [Arc::from("/a/b/c"), Arc::from("/a/b")]);
        let left: Vec<_> = tree.snapshot().into_keys().collect();
        assert_eq!(left, ["/a", "/a/b-d", "/a/b0", "/a/bc"].map(Arc::from));
    }
}
