//! The watches that keep a copy up to date: one over the whole subtree, or two on each node.

use bellwether_client as zk;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::cache::reads::{Ask, ReadAnswer, read_and_watch, read_many};
use crate::session::retry::Happened;

/// How many requests are under way at once, each for many nodes.
const LARGE_READS_MAX: usize = 8;

/// How many requests are under way at once, each for one node.
const SMALL_READS_MAX: usize = 1024;

/// How many nodes are read in one request.
const READ_TOGETHER: usize = 128;

/// How many bytes of paths may be watched one by one. After a reconnect the client sends them all anew, and the server keeps
/// each of them in memory.
const WATCHED_BYTES_MAX: usize = 1_500_000;

/// What a path takes besides its text.
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

    /// How many nodes to read in one request.
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
