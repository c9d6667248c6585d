//! Keeps a copy of a subtree up to date.
//!
//! Events say *where* something happened; what there is now is read. A path with news is *dirty* until its read has been
//! sent, and there is one read a path at a time, so the read that is sent after the last event shows at least that event,
//! and the copy comes to equal the subtree. Replies and events do not reach us in the order in which the server sent
//! them; two rules make that harmless. Data is taken only if it is newer than what is known. And a reply that says that there is
//! nothing, or an event that says so, counts only if no other word of that path is still to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;
use tracing::debug;
use zookeeper_client as zk;

use super::tree::{CacheEvent, CachedNode, Tree};
use crate::client::Client;
use crate::error::{Outcome, outcome};
use crate::state::{Site, StateError, Visit};

/// How many reads are under way at once.
const READS_MAX: usize = 1024;

type Loaded = oneshot::Sender<Result<(), StateError>>;

pub(super) struct Keeper {
    site: Site,
    visit: Visit,
    tree: Arc<Tree>,
    /// Paths to read, below the root.
    dirty: BTreeMap<String, Depth>,
    reading: BTreeSet<String>,
    /// Kept over a reconnect until the next one is armed, so that it is not taken from the server after that.
    watch: Option<zk::PersistentWatcher>,
}

/// How much of a node is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    /// Its children will tell of themselves.
    Data,
    /// Its children too: they may have changed while nobody watched.
    Subtree,
}

/// What a read found.
struct Found {
    below: String,
    depth: Depth,
    content: Result<Option<Content>, zk::Error>,
}

struct Content {
    data: Vec<u8>,
    stat: zk::Stat,
    /// The names of the children, if they were asked for.
    children: Option<Vec<String>>,
}

/// Why a connection is no longer worked with.
enum Interrupted {
    Disconnected,
    SessionEnded,
    Refused(zk::Error),
}

impl From<zk::Error> for Interrupted {
    fn from(error: zk::Error) -> Self {
        match outcome(&error) {
            Outcome::Unknown => Self::Disconnected,
            Outcome::SessionEnded => Self::SessionEnded,
            Outcome::Refused => Self::Refused(error),
        }
    }
}

impl Keeper {
    pub(super) fn new(site: Site, visit: Visit, tree: Arc<Tree>) -> Self {
        Self {
            site,
            visit,
            tree,
            dirty: BTreeMap::new(),
            reading: BTreeSet::new(),
            watch: None,
        }
    }

    /// Goes on until it is dropped, or refused.
    pub(super) async fn keep(mut self, loaded: Loaded) {
        let mut loaded = Some(loaded);
        loop {
            let Err(interrupted) = self.follow(&mut loaded).await;
            let error = match interrupted {
                Interrupted::Disconnected => continue,
                Interrupted::SessionEnded => {
                    self.watch = None;
                    let again = self
                        .site
                        .again(&self.visit, zk::Error::SessionExpired)
                        .await;
                    let visit = match again {
                        Ok(()) => self.site.visit_in_time().await,
                        Err(error) => Err(error),
                    };
                    match visit {
                        Ok(visit) => {
                            self.visit = visit;
                            self.tree.tell(CacheEvent::Renewed);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Interrupted::Refused(error) => self.site.refused(error),
            };
            debug!(path = self.site.path(), %error, "cache ends");
            if let Some(loaded) = loaded.take() {
                let _ = loaded.send(Err(error));
            }
            return;
        }
    }

    /// Works with one connection, from its beginning to its end.
    async fn follow(
        &mut self,
        loaded: &mut Option<Loaded>,
    ) -> Result<std::convert::Infallible, Interrupted> {
        let client = self.visit.client.clone();
        let root = self.visit.node.as_str().to_owned();
        let mut watch = self.arm(&client, &root).await?;
        let mut reads = FuturesUnordered::new();
        self.reading.clear();
        self.mark("", Depth::Subtree);
        loop {
            while reads.len() < READS_MAX
                && let Some((below, depth)) = self.next_dirty()
            {
                self.reading.insert(below.clone());
                reads.push(read(client.zk(), &root, below, depth));
            }
            if reads.is_empty()
                && let Some(loaded) = loaded.take()
            {
                // Who opened it may have gone.
                let _ = loaded.send(Ok(()));
            }
            tokio::select! {
                event = watch.changed() => match event.event_type {
                    zk::EventType::Session if event.session_state.is_terminated() => {
                        return Err(Interrupted::SessionEnded);
                    }
                    zk::EventType::Session
                        if event.session_state == zk::SessionState::Disconnected =>
                    {
                        self.watch = Some(watch);
                        return Err(Interrupted::Disconnected);
                    }
                    zk::EventType::Session => {}
                    what => {
                        if let Some(below) = event.path.strip_prefix(root.as_str()) {
                            self.heard(below, what);
                        }
                    }
                },
                Some(found) = reads.next() => match self.take(found) {
                    Ok(()) => {}
                    Err(interrupted) => {
                        self.watch = Some(watch);
                        return Err(interrupted);
                    }
                },
            }
        }
    }

    /// Watches the subtree on this connection. The client restores no persistent watch after a reconnect.
    async fn arm(
        &mut self,
        client: &Client,
        root: &str,
    ) -> Result<zk::PersistentWatcher, Interrupted> {
        let zk = client.zk();
        let armed = zk.watch(root, zk::AddWatchMode::PersistentRecursive);
        // The server may know less than the last one has told us.
        let caught_up = zk.sync(root);
        let watch = armed.await?;
        self.watch = None;
        match caught_up.await {
            Err(error) if outcome(&error) != Outcome::Refused => {
                self.watch = Some(watch);
                Err(error.into())
            }
            _ => Ok(watch),
        }
    }

    fn mark(&mut self, below: &str, depth: Depth) {
        match self.dirty.get_mut(below) {
            Some(known) => *known = depth.max(*known),
            None => drop(self.dirty.insert(below.to_owned(), depth)),
        }
    }

    /// A path to read, of which no read is under way.
    fn next_dirty(&mut self) -> Option<(String, Depth)> {
        let mut dirty = self.dirty.keys();
        let below = dirty.find(|below| !self.reading.contains(*below))?.clone();
        self.dirty.remove_entry(&below)
    }

    fn heard(&mut self, below: &str, what: zk::EventType) {
        if what == zk::EventType::NodeDeleted
            && !self.reading.contains(below)
            && !self.dirty.contains_key(below)
        {
            self.tree.remove(&self.tree.path(below));
        } else {
            self.mark(below, Depth::Data);
        }
    }

    fn take(&mut self, found: Found) -> Result<(), Interrupted> {
        let Found {
            below,
            depth,
            content,
        } = found;
        self.reading.remove(&below);
        let path = self.tree.path(&below);
        match content {
            Ok(Some(content)) => {
                self.tree
                    .set(&path, CachedNode::new(content.data, &content.stat));
                if let Some(children) = content.children {
                    // Those that are known and not there any more are read too, and found missing.
                    for name in self.tree.children(&path).into_iter().chain(children) {
                        self.mark(&format!("{below}/{name}"), Depth::Subtree);
                    }
                }
                Ok(())
            }
            Ok(None) => {
                match self.dirty.get_mut(&below) {
                    Some(known) => *known = depth.max(*known),
                    None => self.tree.remove(&path),
                }
                Ok(())
            }
            Err(error) => match Interrupted::from(error) {
                Interrupted::Refused(error) => {
                    debug!(path, %error, "node is left out");
                    Ok(())
                }
                interrupted => Err(interrupted),
            },
        }
    }
}

async fn read(zk: &zk::Client, root: &str, below: String, depth: Depth) -> Found {
    let node = format!("{root}{below}");
    let content = async {
        let (data, stat) = zk.get_data(&node).await?;
        let children = match depth {
            Depth::Data => None,
            Depth::Subtree if stat.num_children == 0 => Some(Vec::new()),
            Depth::Subtree => Some(zk.list_children(&node).await?),
        };
        Ok(Content {
            data,
            stat,
            children,
        })
    };
    let content = match content.await {
        Ok(content) => Ok(Some(content)),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    };
    Found {
        below,
        depth,
        content,
    }
}
