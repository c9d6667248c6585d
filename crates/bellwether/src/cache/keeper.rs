//! Keeps a copy of a subtree up to date.
//!
//! Events say *where* something changed; the current state is read. A path with an event is *dirty* until its read has been sent, and there
//! is one read per path at a time. So the read that is sent after the last event shows at least that event, and the copy becomes equal to
//! the subtree. Replies and events do not reach us in the order in which the server sent them; two rules make that harmless. Data is stored
//! only if it is newer than the known data. And a reply or event that says that a node is gone counts only if no other reply for that path,
//! or for a path below it, is still expected.
//!
//! With a watch on each node, the read that follows an event also sets the watch again, and a new node is reported by the watch on its
//! parent. A deleted node is always read again, since it may have been created anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{BitOr, Bound};
use std::sync::Arc;

use bellwether_client as zk;
use bellwether_client::log;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::cache::{CacheEvent, CachedNode, Tree};
use crate::error::{ErrorKind, Failure};
use crate::request::{Freshness, OpenNode, PersistentNode};
use crate::session::Session;
use crate::session::retry::Happened;

/// The number of bytes that are read in one request, judging by the largest node of the last read.
const READ_BYTES: usize = 256 << 10;

type Loaded = oneshot::Sender<Result<(), Failure>>;

pub(super) struct CacheKeeper {
    node: PersistentNode,
    opened: OpenNode,
    tree: Arc<Tree>,
    freshness: Arc<Freshness>,
    /// Paths to read, below the root.
    dirty: BTreeMap<String, Ask>,
    reading: BTreeSet<String>,
    /// The largest node of the last read.
    node_bytes: usize,
    /// True if the servers have no watches over a whole subtree.
    watches_each: bool,
    /// Kept over a reconnect until the next one is armed, so that it is not taken from the server after that.
    watch: Option<zk::PersistentWatch>,
}

/// The reason why the work with a connection ended.
enum ConnectionEnd {
    Disconnected,
    SessionEnded,
    Refused(zk::Error),
    TooMuch(TooMuch),
}

impl From<TooMuch> for ConnectionEnd {
    fn from(much: TooMuch) -> Self {
        Self::TooMuch(much)
    }
}

impl From<zk::Error> for ConnectionEnd {
    fn from(error: zk::Error) -> Self {
        match error {
            error if error.is_transient() => Self::Disconnected,
            zk::Error::SessionEnded(_) => Self::SessionEnded,
            error => Self::Refused(error),
        }
    }
}

impl CacheKeeper {
    pub(super) fn new(
        node: PersistentNode,
        opened: OpenNode,
        tree: Arc<Tree>,
        freshness: Arc<Freshness>,
    ) -> Self {
        Self {
            node,
            opened,
            tree,
            freshness,
            dirty: BTreeMap::new(),
            reading: BTreeSet::new(),
            node_bytes: 0,
            watches_each: false,
            watch: None,
        }
    }

    /// Runs until it is dropped, a server refuses, the client is closed, or there are too many nodes for single watches.
    pub(super) async fn keep(mut self, loaded: Loaded) {
        let mut loaded = Some(loaded);
        loop {
            let Err(interrupted) = self.follow(&mut loaded).await;
            self.freshness.outdated();
            let failure = match interrupted {
                ConnectionEnd::Disconnected => continue,
                ConnectionEnd::SessionEnded => {
                    self.watch = None;
                    let again = self
                        .node
                        .again(
                            &self.opened,
                            zk::Error::SessionEnded(zk::SessionEnd::Expired),
                        )
                        .await;
                    let opened = match again {
                        Ok(()) => self.node.open_in_time().await,
                        Err(error) => Err(error),
                    };
                    match opened {
                        Ok(opened) => {
                            self.opened = opened;
                            self.tree.tell(CacheEvent::Renewed);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                ConnectionEnd::Refused(error) => self.node.failed(error),
                ConnectionEnd::TooMuch(TooMuch { bytes, bytes_max }) => {
                    self.node.failed(ErrorKind::TooLarge { bytes, bytes_max })
                }
            };
            match loaded {
                // The caller may be gone.
                Some(loaded) => drop(loaded.send(Err(failure))),
                None => {
                    let error = failure.of("cache.open", self.node.path());
                    let (path, reason) = (error.path.clone(), error.to_string());
                    log::emit(move || warn!(path, error = reason, "cache ends"));
                    self.tree.end(error.into());
                }
            }
            return;
        }
    }

    /// Works with one connection, or one session where watches outlast connections, from its beginning to its end.
    async fn follow(
        &mut self,
        loaded: &mut Option<Loaded>,
    ) -> Result<std::convert::Infallible, ConnectionEnd> {
        let session = self.opened.session.clone();
        let root = self.opened.path.as_str().to_owned();
        let mut watches = self.arm(&session, &root).await?;
        let mut reads = FuturesUnordered::new();
        self.reading.clear();
        self.mark("", Ask::SUBTREE);
        loop {
            while reads.len() < watches.reads_max() {
                let asks = self.next_dirty(watches.read_together());
                if asks.is_empty() {
                    break;
                }
                reads.push(watches.read(session.zk(), &root, asks));
            }
            if reads.is_empty() {
                self.freshness.up_to_date(&session);
                if let Some(loaded) = loaded.take() {
                    // The caller may be gone.
                    let _ = loaded.send(Ok(()));
                }
            }
            let ended = tokio::select! {
                biased;
                news = watches.next(&root) => match news {
                    CacheNews::Of(below, what) => {
                        self.heard(&below, what);
                        continue;
                    }
                    CacheNews::Missed => ConnectionEnd::Disconnected,
                    CacheNews::SessionEnded => ConnectionEnd::SessionEnded,
                },
                Some(found) = reads.next() => match self.take_all(found, &root, &mut watches) {
                    Ok(()) => continue,
                    Err(interrupted) => interrupted,
                },
            };
            if let Watches::Whole(watch) = watches {
                self.watch = Some(watch);
            }
            return Err(ended);
        }
    }

    /// Sets the watch over the subtree on this connection, or else only syncs the server with what the previous server has shown.
    async fn arm(&mut self, session: &Session, root: &str) -> Result<Watches, ConnectionEnd> {
        let zk = session.zk();
        if !self.watches_each {
            let armed = zk.watch(root, zk::WatchMode::Recursive);
            // The server may lag behind the previous one.
            let read_synced = zk.sync(root);
            match armed.await {
                Ok(watch) => {
                    self.watch = None;
                    return match read_synced.await {
                        Err(error) if !error.is_refusal() => {
                            self.watch = Some(watch);
                            Err(error.into())
                        }
                        _ => Ok(Watches::Whole(watch)),
                    };
                }
                // It has closed the connection too, as servers do that do not know an operation.
                Err(zk::Error::UNIMPLEMENTED) => self.watches_each = true,
                Err(error) => return Err(error.into()),
            }
        }
        match zk.sync(root).await {
            Err(error) if !error.is_refusal() => Err(error.into()),
            _ => Ok(Watches::Each(Armed::default())),
        }
    }

    fn mark(&mut self, below: &str, ask: Ask) {
        match self.dirty.get_mut(below) {
            Some(known) => *known = *known | ask,
            None => drop(self.dirty.insert(below.to_owned(), ask)),
        }
    }

    /// Paths to read for which no read is under way.
    fn next_dirty(&mut self, together: usize) -> Vec<(String, Ask)> {
        let count = (READ_BYTES / self.node_bytes.max(1)).clamp(1, together);
        let dirty = self.dirty.keys();
        let next: Vec<_> = dirty
            .filter(|below| !self.reading.contains(*below))
            .take(count)
            .cloned()
            .collect();
        self.reading.extend(next.iter().cloned());
        next.iter()
            .filter_map(|below| self.dirty.remove_entry(below))
            .collect()
    }

    fn heard(&mut self, below: &str, what: Happened) {
        let is_settled = !self.reading.contains(below)
            && !self.dirty.contains_key(below)
            && self.is_settled_below(below);
        let ask = match (self.watches_each, what) {
            // No reply is expected that could say otherwise, and if the node is created again, an event will say so.
            (false, Happened::Deleted) if is_settled => {
                return self.tree.remove(&self.tree.path(below));
            }
            // Its children have their own watches.
            (false, _) | (true, Happened::DataChanged) => Ask::DATA,
            (true, Happened::ChildrenChanged) => Ask::NAMES,
            // Both watches are used up.
            (true, _) => Ask::SUBTREE,
        };
        self.mark(below, ask);
    }

    /// Returns whether no reply for any path below is still expected.
    fn is_settled_below(&self, below: &str) -> bool {
        // A zero is what follows a slash.
        let (first, end) = (format!("{below}/"), format!("{below}0"));
        let all_below = (Bound::Included(&*first), Bound::Excluded(&*end));
        let is_read = self.reading.range::<str, _>(all_below).next().is_some();
        let is_dirty = self.dirty.range::<str, _>(all_below).next().is_some();
        !is_read && !is_dirty
    }

    fn take_all(
        &mut self,
        found: Vec<ReadAnswer>,
        root: &str,
        watches: &mut Watches,
    ) -> Result<(), ConnectionEnd> {
        let mut ended = Ok(());
        self.node_bytes = 0;
        // All replies are collected first: the meaning of one may depend on whether replies for paths below it are expected.
        for found in &found {
            self.reading.remove(&found.below);
        }
        for mut found in found {
            watches.add(root, &mut found)?;
            if let Err(interrupted) = self.take(found) {
                ended = Err(interrupted);
            }
        }
        match ended {
            // Where watches survive the connection, only the data has to be read again.
            Err(ConnectionEnd::Disconnected) if self.watches_each => Ok(()),
            ended => ended,
        }
    }

    fn take(&mut self, found: ReadAnswer) -> Result<(), ConnectionEnd> {
        let ReadAnswer {
            below,
            ask,
            content,
            ..
        } = found;
        let path = self.tree.path(&below);
        match content {
            Ok(Some(content)) => {
                if let Some(node) = content.node {
                    self.node_bytes = self.node_bytes.max(node.data.len());
                    self.tree.set(&path, node);
                }
                if let Some(names) = content.names {
                    self.take_names(&below, ask, names);
                }
                Ok(())
            }
            Ok(None) => {
                match self.dirty.contains_key(&below) || !self.is_settled_below(&below) {
                    true => self.mark(&below, ask),
                    false => self.tree.remove(&path),
                }
                Ok(())
            }
            Err(error) => match ConnectionEnd::from(error) {
                ConnectionEnd::Refused(error) => {
                    log::emit(move || debug!(path, %error, "node is left out"));
                    Ok(())
                }
                interrupted => {
                    self.mark(&below, ask);
                    Err(interrupted)
                }
            },
        }
    }

    /// Reads new and deleted nodes, or everything.
    fn take_names(&mut self, below: &str, ask: Ask, names: Vec<String>) {
        let known = self.tree.children(&self.tree.path(below));
        let names: BTreeSet<_> = names.into_iter().collect();
        for name in known.union(&names) {
            let child = format!("{below}/{name}");
            let stays = known.contains(name) && names.contains(name);
            // A node that is being read may be reported as missing although it has been created again by now.
            if ask.below || !stays || self.reading.contains(&child) {
                self.mark(&child, Ask::SUBTREE);
            }
        }
    }
}

/// A request to read a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    data: bool,
    names: bool,
    /// True if all children are to be read then, and not only new and deleted ones.
    pub(super) below: bool,
}

impl Ask {
    pub(super) const DATA: Self = Self {
        data: true,
        names: false,
        below: false,
    };

    /// The names of the children.
    pub(super) const NAMES: Self = Self {
        data: false,
        names: true,
        below: false,
    };

    /// Everything: it may have changed while no watch was set.
    pub(super) const SUBTREE: Self = Self {
        data: true,
        names: true,
        below: true,
    };
}

impl BitOr for Ask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            data: self.data | other.data,
            names: self.names | other.names,
            below: self.below | other.below,
        }
    }
}

/// The result of a read.
pub(super) struct ReadAnswer {
    pub(super) below: String,
    pub(super) ask: Ask,
    /// `None` if there is no such node.
    pub(super) content: Result<Option<NodeContent>, zk::Error>,
    /// The watches that the read has set.
    pub(super) watches: Vec<zk::Watch>,
}

/// The content that was asked for.
#[derive(Default)]
pub(super) struct NodeContent {
    pub(super) node: Option<CachedNode>,
    pub(super) names: Option<Vec<String>>,
}

/// Reads many nodes in one request, or in more where the server does not answer so much at once. They are named by their paths
/// below the root.
pub(super) async fn read_many(
    zk: &zk::Client,
    root: &str,
    mut asks: Vec<(String, Ask)>,
) -> Vec<ReadAnswer> {
    match read_together(zk, root, &asks).await {
        Err(zk::Error::Refused(zk::ErrorCode::MarshallingError)) if asks.len() > 1 => {
            let rest = asks.split_off(asks.len() / 2);
            let mut found = Box::pin(read_many(zk, root, asks)).await;
            found.extend(Box::pin(read_many(zk, root, rest)).await);
            found
        }
        Ok(results) => {
            let mut results = results.into_iter();
            let found = |(below, ask): (String, Ask)| {
                let own: Vec<_> = results
                    .by_ref()
                    .take(usize::from(ask.data) + usize::from(ask.names))
                    .collect();
                ReadAnswer {
                    below,
                    ask,
                    content: content_of(own),
                    watches: Vec::new(),
                }
            };
            asks.into_iter().map(found).collect()
        }
        Err(error) => {
            let failed = |(below, ask)| ReadAnswer {
                below,
                ask,
                content: Err(error),
                watches: Vec::new(),
            };
            asks.into_iter().map(failed).collect()
        }
    }
}

async fn read_together(
    zk: &zk::Client,
    root: &str,
    asks: &[(String, Ask)],
) -> Result<Vec<zk::MultiReadResult>, zk::Error> {
    let mut reader = zk.new_multi_read();
    let mut node = root.to_owned();
    for (below, ask) in asks {
        node.truncate(root.len());
        node.push_str(below);
        if ask.data {
            reader.get(&node);
        }
        if ask.names {
            reader.children(&node);
        }
    }
    reader.commit().await
}

fn content_of(results: Vec<zk::MultiReadResult>) -> Result<Option<NodeContent>, zk::Error> {
    let mut content = NodeContent::default();
    for result in results {
        match result {
            zk::MultiReadResult::Data(data, stat) => {
                content.node = Some(CachedNode::new(data.to_vec(), &stat));
            }
            zk::MultiReadResult::Children(children) => content.names = Some(children),
            zk::MultiReadResult::Refused(zk::ErrorCode::NoNode) => return Ok(None),
            zk::MultiReadResult::Refused(code) => return Err(zk::Error::Refused(code)),
        }
    }
    Ok(Some(content))
}

/// Reads a node, and sets watches on what was read. A missing node is watched only at the root: otherwise the watch on its parent reports
/// it.
pub(super) async fn read_and_watch(
    zk: &zk::Client,
    root: &str,
    (below, ask): (String, Ask),
) -> ReadAnswer {
    let node = format!("{root}{below}");
    let mut watches = Vec::new();
    let content = loop {
        watches.clear();
        match watch_content(zk, &node, ask, &mut watches).await {
            Err(zk::Error::NO_NODE) if below.is_empty() => {
                match zk.exists_watched(&node).await {
                    // Made in between.
                    Ok((Some(_), _)) => {}
                    Ok((None, watch)) => {
                        watches = vec![watch];
                        break Ok(None);
                    }
                    Err(error) => break Err(error),
                }
            }
            Err(zk::Error::NO_NODE) => break Ok(None),
            content => break content.map(Some),
        }
    };
    ReadAnswer {
        below,
        ask,
        content,
        watches,
    }
}

async fn watch_content(
    zk: &zk::Client,
    node: &str,
    ask: Ask,
    watches: &mut Vec<zk::Watch>,
) -> Result<NodeContent, zk::Error> {
    // Made before the first await: they are sent in one packet.
    let data = ask.data.then(|| zk.get_watched(node));
    let names = ask.names.then(|| zk.children_watched(node));
    let mut content = NodeContent::default();
    if let Some(data) = data {
        let (data, stat, watch) = data.await?;
        content.node = Some(CachedNode::new(data.to_vec(), &stat));
        watches.push(watch);
    }
    if let Some(names) = names {
        let (names, watch) = names.await?;
        content.names = Some(names);
        watches.push(watch);
    }
    Ok(content)
}

/// The number of requests that are under way at once, each for many nodes.
const LARGE_READS_MAX: usize = 8;

/// The number of requests that are under way at once, each for one node.
const SMALL_READS_MAX: usize = 1024;

/// The number of nodes that are read in one request.
const READ_TOGETHER: usize = 128;

/// The size of the paths that may be watched one by one. After a reconnect the client sends them all anew, and the server keeps each of
/// them in memory.
const WATCHED_BYTES_MAX: usize = 1_500_000;

/// The size of a path besides its text.
const PATH_OVERHEAD_BYTES: usize = 4;

/// The watches of one session.
pub(super) enum Watches {
    /// One persistent recursive watch.
    Whole(zk::PersistentWatch),
    /// One-shot watches on data and children of each node, which the client restores after a reconnect: for servers before
    /// 3.6, which have no others.
    Each(Armed),
}

/// One-shot watches, each with the path that it is on.
#[derive(Default)]
pub(super) struct Armed {
    watches: FuturesUnordered<BoxFuture<'static, (String, Happened)>>,
    bytes: usize,
}

/// The events of watches.
pub(super) enum CacheNews {
    /// Something happened to the node at this path below the root.
    Of(String, Happened),
    /// The connection was lost and is back: changes may have been missed.
    Missed,
    SessionEnded,
}

/// There are more nodes than can be watched.
pub(super) struct TooMuch {
    pub(super) bytes: usize,
    pub(super) bytes_max: usize,
}

impl Watches {
    pub(super) async fn next(&mut self, root: &str) -> CacheNews {
        match self {
            Self::Whole(watch) => loop {
                match watch.next().await {
                    Ok(zk::PersistentEvent::Node(event)) => {
                        if let Some(below) = event.path.strip_prefix(root) {
                            let below = below.to_owned();
                            return CacheNews::Of(below, Happened::from(Ok(event)));
                        }
                    }
                    Ok(zk::PersistentEvent::Missed) => return CacheNews::Missed,
                    Err(_) => return CacheNews::SessionEnded,
                }
            },
            Self::Each(armed) => match armed.watches.next().await {
                Some((_, Happened::SessionEnded)) => CacheNews::SessionEnded,
                Some((below, event)) => {
                    armed.bytes -= below.len() + root.len() + PATH_OVERHEAD_BYTES;
                    CacheNews::Of(below, event)
                }
                // Nothing is watched yet.
                None => std::future::pending().await,
            },
        }
    }

    /// Returns the number of nodes to read in one request.
    pub(super) fn read_together(&self) -> usize {
        match self {
            Self::Whole(_) => READ_TOGETHER,
            Self::Each(_) => 1,
        }
    }

    pub(super) fn reads_max(&self) -> usize {
        match self {
            Self::Whole(_) => LARGE_READS_MAX,
            Self::Each(_) => SMALL_READS_MAX,
        }
    }

    /// Reads what has changed, and sets watches for the next change.
    pub(super) fn read<'a>(
        &self,
        zk: &'a zk::Client,
        root: &'a str,
        mut asks: Vec<(String, Ask)>,
    ) -> BoxFuture<'a, Vec<ReadAnswer>> {
        match self {
            Self::Whole(_) => read_many(zk, root, asks).boxed(),
            Self::Each(_) => {
                let one = asks.pop().expect("one is asked for");
                let found = read_and_watch(zk, root, one);
                found.map(|found| vec![found]).boxed()
            }
        }
    }

    /// Adds the watches that a read has set.
    pub(super) fn add(&mut self, root: &str, found: &mut ReadAnswer) -> Result<(), TooMuch> {
        let Self::Each(armed) = self else {
            return Ok(());
        };
        for watch in found.watches.drain(..) {
            let below = found.below.clone();
            armed.bytes += below.len() + root.len() + PATH_OVERHEAD_BYTES;
            let event = async move { (below, Happened::from(watch.await)) };
            armed.watches.push(event.boxed());
        }
        match armed.bytes > WATCHED_BYTES_MAX {
            true => Err(TooMuch {
                bytes: armed.bytes,
                bytes_max: WATCHED_BYTES_MAX,
            }),
            false => Ok(()),
        }
    }
}
