//! What is going on below a path: every recipe that is in use there, by the nodes that it leaves.

mod recognise;

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use crate::client::Client;
use crate::contention::Contestant;
use crate::crash_mark::Crash;
use crate::double_barrier::Members;
use crate::error::ContentionError;
use crate::name::Layout;
use crate::path::NodePath;
use crate::queue::Depth;
use crate::state::StateError;
use crate::tasks::TaskCounts;
use crate::two_phase::{Status, TransactionError, TwoPhase};
use crate::who::Who;

use self::recognise::Directory;

/// How many requests may be unanswered.
const AHEAD_MAX: usize = 128;

/// How many transactions are looked at together; each takes some requests at once.
const TRANSACTIONS_AHEAD_MAX: usize = 8;

/// How many directories are looked at before a search gives up.
const DIRECTORIES_MAX: usize = 100_000;

/// A look from outside at all that goes on below a path.
///
/// # What it guarantees
///
/// Each thing is seen as it was at some moment after the call. At most 128 requests are under way at once, however much there is, and
/// none of them changes anything.
///
/// # What it does not
///
/// The moments differ: what moves from one place to another meanwhile may be seen twice or not at all. Recipes are known by their
/// nodes, so one that nobody uses just now leaves nothing to see.
///
/// # Node layout
///
/// It has no nodes. It knows those of this library, and the locks, read/write locks, semaphores and leader elections of Curator and kazoo.
///
/// # Fairness and session loss
///
/// It takes no place in any line, and holds nothing that could be lost.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, ContentionError, Recipe, Survey};
/// # async fn run(client: &Client) -> Result<(), ContentionError> {
/// let overview = Survey::new(client, "/").look().await?;
/// for sight in &overview.sights {
///     if let Recipe::Line(line) = &sight.what {
///         println!("{}: {} hold, {} wait", sight.path, line.holders().count(), line.waiters().count());
///     }
/// }
/// println!("{} circles of waiting", overview.deadlocks().len());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Survey {
    client: Client,
    path: String,
}

/// What a [`Survey`] has seen.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Everything that is in use, in the order of the paths.
    pub sights: Vec<Sight>,
    /// The nodes that this client may not read. What is below them is not known.
    pub unreadable: Vec<String>,
}

/// Something that is in use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sight {
    /// Where.
    pub path: String,
    /// What it is.
    pub what: Recipe,
}

/// What is in use at a path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Recipe {
    /// Contenders in a line.
    Line(Line),
    /// A [`Barrier`](crate::Barrier) that is set: by whom, if that can be read, and since when.
    #[expect(missing_docs, reason = "the line above names both")]
    Barrier {
        set_by: Option<Who>,
        since: SystemTime,
    },
    /// A [`DoubleBarrier`](crate::DoubleBarrier): who is there, and how many are missing.
    DoubleBarrier(Members),
    /// A queue.
    Queue(QueueSight),
    /// [`Tasks`](crate::Tasks): how many are in which state, and who is at which.
    #[expect(missing_docs, reason = "the line above names both")]
    Tasks {
        counts: TaskCounts,
        claims: Vec<Contestant>,
    },
    /// A transaction of [`TwoPhase`] that waits for a decision.
    Transaction(Status),
}

/// A line of contenders.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// What they contend for.
    pub kind: LineKind,
    /// The library that made it.
    pub layout: Layout,
    /// Everybody in it, the first one first.
    pub contestants: Vec<Contestant>,
    /// How many permits there are, if the servers know.
    pub limit: Option<u64>,
    /// What a holder has left behind that never released.
    pub crash: Option<Crash>,
}

/// What a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineKind {
    /// A [`Lock`](crate::Lock).
    Lock,
    /// A [`SimpleLock`](crate::SimpleLock); who waits for it cannot be seen.
    SimpleLock,
    /// An [`RwLock`](crate::RwLock).
    RwLock,
    /// A [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// An [`Election`](crate::Election).
    Election,
}

impl Line {
    /// Those who have what they want.
    pub fn holders(&self) -> impl Iterator<Item = &Contestant> {
        self.contestants.iter().filter(|one| one.holds)
    }

    /// Those who do not.
    pub fn waiters(&self) -> impl Iterator<Item = &Contestant> {
        self.contestants.iter().filter(|one| !one.holds)
    }
}

/// A queue, as of one look.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueSight {
    /// How full it is.
    pub depth: Depth,
    /// Who is at which item; the node of each has the name of the item.
    pub claims: Vec<Contestant>,
    /// How many consumers wait for an item.
    pub consumers: usize,
}

impl Survey {
    /// A survey of a path and all below it. Nothing is sent, nor is the path checked, until it is looked at.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
        }
    }

    /// Looks at everything. The nodes of the servers themselves, below `/zookeeper`, are left out.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`ContentionError`].
    pub async fn look(&self) -> Result<Overview, ContentionError> {
        if self.path != "/" {
            NodePath::parse(&self.path).map_err(|source| ContentionError::BadPath {
                path: self.path.clone(),
                source,
            })?;
        }
        let failed = |source| ContentionError::Failed {
            path: self.path.clone(),
            source,
        };
        let mut scout = Scout {
            zk: self.client.raw(),
            unreadable: Vec::new(),
            in_doubt: Vec::new(),
        };
        // A read may be answered by a server that lags behind.
        scout.zk.sync("/").await.map_err(failed)?;
        let mut sights = BTreeMap::new();
        let mut level = vec![self.path.clone()];
        let mut seen = 0;
        while !level.is_empty() {
            seen += level.len();
            if seen > DIRECTORIES_MAX {
                return Err(ContentionError::TooLarge {
                    path: self.path.clone(),
                    directories_max: DIRECTORIES_MAX,
                });
            }
            level = scout.explore(level, &mut sights).await.map_err(failed)?;
        }
        recognise::join_semaphores(&mut sights);
        for (path, status) in self.transactions(&scout.in_doubt).await? {
            sights.insert(path, vec![Recipe::Transaction(status)]);
        }
        Ok(Overview {
            sights: sights
                .into_iter()
                .flat_map(|(path, found)| {
                    found.into_iter().map(move |what| Sight {
                        path: path.clone(),
                        what,
                    })
                })
                .collect(),
            unreadable: scout.unreadable,
        })
    }
}

impl Survey {
    /// How far these transactions are; without those that were decided meanwhile.
    async fn transactions(
        &self,
        paths: &[String],
    ) -> Result<Vec<(String, Status)>, ContentionError> {
        let look = |path: &String| {
            let (dir, id) = path.rsplit_once('/').unwrap_or_default();
            let transaction = TwoPhase::new(&self.client, dir).transaction(id);
            let path = path.clone();
            async move { (path, transaction.status().await) }
        };
        let mut looks = stream::iter(paths.iter().map(look)).buffered(TRANSACTIONS_AHEAD_MAX);
        let mut found = Vec::new();
        while let Some((path, status)) = looks.next().await {
            match status {
                Ok(status) if status.decision.is_none() => found.push((path, status)),
                Err(TransactionError::State(StateError::Refused { source, .. })) => {
                    return Err(ContentionError::Failed { path, source });
                }
                // Decided or forgotten meanwhile.
                _ => {}
            }
        }
        Ok(found)
    }
}

/// What is in use, by path.
type Found = BTreeMap<String, Vec<Recipe>>;

/// Children and stat of nodes, by path.
type Lists = HashMap<String, (Vec<String>, zk::Stat)>;

/// Data and stat of nodes, by path.
type Contents = HashMap<String, (Bytes, zk::Stat)>;

struct Scout {
    /// Rooted at the chroot.
    zk: zk::Client,
    unreadable: Vec<String>,
    /// The transactions that wait for a decision.
    in_doubt: Vec<String>,
}

impl Scout {
    /// Looks at some directories, adds what is in use there, and returns the directories below them. Four rounds of requests, or
    /// five where queues have shards, each of which depends on the one before, for however many directories there are.
    async fn explore(
        &mut self,
        level: Vec<String>,
        sights: &mut Found,
    ) -> Result<Vec<String>, zk::Error> {
        let mut lists = self.list_all(level).await?;
        let own = lists
            .iter()
            .filter(|(_, (children, stat))| recognise::may_tell(children, stat));
        let own = own.map(|(path, _)| path.clone()).collect();
        let mut contents = self.read_all(own).await?;
        let directories: Vec<_> = lists
            .drain()
            .map(|(path, list)| {
                let data = contents.remove(&path);
                Directory::new(path, list, data)
            })
            .collect();
        let parts = directories.iter().flat_map(Directory::parts).collect();
        let mut parts = self.list_all(parts).await?;
        let shards = directories.iter().flat_map(|dir| dir.shards(&parts));
        let shards = shards.collect();
        parts.extend(self.list_all(shards).await?);
        let nodes = directories.iter().flat_map(|dir| dir.nodes(&parts));
        let nodes = nodes.collect();
        let nodes = self.read_all(nodes).await?;
        let mut below = Vec::new();
        for directory in directories {
            below.extend(directory.below(&parts, &nodes));
            if directory.is_in_doubt() {
                self.in_doubt.push(directory.into_path());
                continue;
            }
            let found = directory.conclude(&parts, &nodes);
            if !found.is_empty() {
                sights.insert(directory.into_path(), found);
            }
        }
        Ok(below)
    }

    async fn list_all(&mut self, paths: Vec<String>) -> Result<Lists, zk::Error> {
        let zk = self.zk.clone();
        self.ask_all(paths, |path| zk.children_stat(path)).await
    }

    async fn read_all(&mut self, paths: Vec<String>) -> Result<Contents, zk::Error> {
        let zk = self.zk.clone();
        self.ask_all(paths, |path| zk.get(path)).await
    }

    /// Sends a request for each path, not too far ahead of the answers. What has gone is left out.
    async fn ask_all<T, F>(
        &mut self,
        paths: Vec<String>,
        request: impl Fn(&str) -> F,
    ) -> Result<HashMap<String, T>, zk::Error>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        let mut answers = stream::iter(paths)
            .map(|path| {
                // It leaves when its future is made.
                let answer = request(&path);
                async move { (path, answer.await) }
            })
            .buffered(AHEAD_MAX);
        let mut found = HashMap::new();
        while let Some((path, answer)) = answers.next().await {
            match answer {
                Ok(answer) => drop(found.insert(path, answer)),
                Err(zk::Error::NO_NODE) => {}
                Err(zk::Error::NO_AUTH) => self.unreadable.push(path),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}
