//! A survey of all recipes that are in use below a path, recognised by their nodes.

mod directory;

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use crate::barrier::double::Members;
use crate::error::{Error, ErrorKind, Failure};
use crate::hold::crash_mark::Crash;
use crate::inspect::contention::QueueEntry;
use crate::inspect::survey::directory::Directory;
use crate::line::name::Layout;
use crate::node::data::Who;
use crate::queue::Depth;
use crate::queue::tasks::TaskCounts;
use crate::session::client::Client;
use crate::session::telemetry::call;
use crate::two_phase::{Status, TwoPhase};

/// The number of requests that may be unanswered.
const AHEAD_MAX: usize = 128;

/// The number of transactions that are looked at together; each takes some requests at once.
const TRANSACTIONS_AHEAD_MAX: usize = 8;

/// The number of directories that are looked at unless set.
const DIRECTORIES_MAX: usize = 100_000;

/// The number of looks at a directory whose contenders leave between the list and the reads.
const LOOKS_MAX: usize = 5;

/// Finds all recipes that are in use below a path.
///
/// # What it guarantees
///
/// Each thing is seen as it was at some moment after the call. At most 128 requests are under way at once, however much there is, and
/// none of them changes anything.
///
/// # What it does not
///
/// It is not a snapshot: something that moves during the look may be seen twice or not at all. Recipes are recognised by their nodes, so a
/// recipe that is not in use at the moment is not seen.
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
/// # use bellwether::Client;
/// # use bellwether::Error;
/// # use bellwether::inspect::{Recipe, Survey};
/// # async fn run(client: &Client) -> Result<(), Error> {
/// let overview = Survey::new(client, "/").look().await?;
/// for sight in &overview.recipes {
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
    others: Vec<String>,
    directories_max: usize,
    scope: Scope,
}

/// The part of the tree that is looked at.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    All,
    /// Lines with a waiter, and the line at this path.
    Waits(String),
}

/// The result of a [`Survey`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Everything that is in use, in the order of the paths.
    pub recipes: Vec<RecipeAt>,
    /// The nodes that this client may not read. What is below them is not known.
    pub unreadable: Vec<String>,
    /// The number of directories that were seen and not looked at, because there are [too many](Survey::directories_max). What is below
    /// them is not known.
    pub unexplored: usize,
}

/// Something that is in use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecipeAt {
    /// The path of the recipe.
    pub path: String,
    /// The recipe that is in use.
    pub what: Recipe,
}

/// A recipe that is in use at a path.
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
    /// A [`DoubleBarrier`](crate::DoubleBarrier): its members, and how many are missing.
    DoubleBarrier(Members),
    /// A queue.
    Queue(QueueOverview),
    /// [`Tasks`](crate::Tasks): how many are in which state, and which worker has claimed which.
    #[expect(missing_docs, reason = "the line above names both")]
    Tasks {
        counts: TaskCounts,
        claims: Vec<QueueEntry>,
    },
    /// A transaction of [`TwoPhase`] that waits for a decision.
    Transaction(Status),
}

/// A line of contenders.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// The goal for which they contend.
    pub kind: LineKind,
    /// The library that made it; that of the first contender if the line [mixes layouts](Self::mixes_layouts).
    pub layout: Layout,
    /// All contenders, in order.
    pub entries: Vec<QueueEntry>,
    /// The number of permits, if the servers know.
    pub limit: Option<u64>,
    /// The crash of the last holder, if it never released.
    pub crash: Option<Crash>,
}

/// The purpose of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineKind {
    /// A [`Lock`](crate::Lock).
    Lock,
    /// A [`SimpleLock`](crate::SimpleLock); its waiters cannot be seen.
    SimpleLock,
    /// An [`RwLock`](crate::RwLock).
    RwLock,
    /// A [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// An [`Election`](crate::Election).
    Election,
}

impl Line {
    /// The holders.
    pub fn holders(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().filter(|one| one.holds)
    }

    /// Returns whether contenders use the layouts of different libraries. They do not exclude each other.
    #[must_use]
    pub fn mixes_layouts(&self) -> bool {
        let mut layouts = self.entries.iter().map(|one| one.layout);
        layouts.any(|layout| layout != self.layout)
    }

    /// The waiters.
    pub fn waiters(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().filter(|one| !one.holds)
    }
}

/// A queue, as of one look.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueOverview {
    /// The number of items, by state.
    pub depth: Depth,
    /// The consumers with a claim; the node of each has the name of the item.
    pub claims: Vec<QueueEntry>,
    /// The number of consumers that wait for an item.
    pub consumers: usize,
}

impl Survey {
    /// A survey of a path and all below it. Nothing is sent, nor is the path checked, until it is looked at.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            others: Vec::new(),
            directories_max: DIRECTORIES_MAX,
            scope: Scope::All,
        }
    }

    /// Looks at another path too, and all below it. One look at many paths takes as many round trips as a look at one.
    #[must_use]
    pub fn and(mut self, path: impl Into<String>) -> Self {
        self.others.push(path.into());
        self
    }

    /// Looks at `directories_max` directories at most, 100,000 unless set, those near the top first. The rest is
    /// [counted](Overview::unexplored).
    #[must_use]
    pub fn directories_max(self, directories_max: usize) -> Self {
        Self {
            directories_max,
            ..self
        }
    }

    /// Looks only at lines with a waiter, and at the line at `path`: enough to find what its holders wait for. A line of one contender
    /// costs a list and no read.
    #[must_use]
    pub fn only_waits(self, path: impl Into<String>) -> Self {
        Self {
            scope: Scope::Waits(path.into()),
            ..self
        }
    }

    /// The path, without those that were [added](Self::and).
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Looks at everything. The nodes of the servers themselves, below `/zookeeper`, are left out.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn look(&self) -> Result<Overview, Error> {
        call!("survey.look", self.path()).run(self.explore()).await
    }

    async fn explore(&self) -> Result<Overview, Failure> {
        let paths = std::iter::once(&self.path).chain(&self.others);
        for path in paths.clone().filter(|path| *path != "/") {
            let node = self.client.node(path);
            node.map_err(|failure| Failure::elsewhere(path, failure.kind))?;
        }
        let session = self.client.session().await?;
        let mut scout = Scout {
            zk: session.raw(),
            unreadable: Vec::new(),
            in_doubt: Vec::new(),
            looks: HashMap::new(),
            scope: self.scope.clone(),
        };
        // A read may be answered by a lagging server.
        scout.zk.sync("/").await?;
        let mut recipes = BTreeMap::new();
        let mut level: Vec<_> = paths.cloned().collect();
        let (mut left, mut unexplored) = (self.directories_max, 0);
        while !level.is_empty() {
            let too_many = level.len().saturating_sub(left);
            level.truncate(left);
            left -= level.len();
            unexplored += too_many;
            level = scout.explore(level, &mut recipes).await?;
        }
        directory::join_semaphores(&mut recipes);
        for (path, status) in self.transactions(&scout.in_doubt).await? {
            recipes.insert(path, vec![Recipe::Transaction(status)]);
        }
        Ok(Overview {
            recipes: recipes
                .into_iter()
                .flat_map(|(path, found)| {
                    found.into_iter().map(move |what| RecipeAt {
                        path: path.clone(),
                        what,
                    })
                })
                .collect(),
            unreadable: scout.unreadable,
            unexplored,
        })
    }

    /// The status of these transactions, without those that were decided meanwhile.
    async fn transactions(&self, paths: &[String]) -> Result<Vec<(String, Status)>, Failure> {
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
                // Without a session nothing is known of it, and it may not be left out in silence.
                Err(Error {
                    kind: kind @ (ErrorKind::Refused { .. } | ErrorKind::NoSession(_)),
                    ..
                }) => return Err(Failure::elsewhere(path, kind)),
                // Decided or forgotten meanwhile, or it cannot be read now.
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The recipes that are in use, by path.
type RecipesByPath = BTreeMap<String, Vec<Recipe>>;

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
    /// The number of vain looks at directories, by path.
    looks: HashMap<String, usize>,
    scope: Scope,
}

impl Scout {
    /// Looks at some directories, adds the recipes in use there, and returns the directories to look at next: their children, and
    /// directories that changed during the look. It takes four round trips, for any number of directories.
    async fn explore(
        &mut self,
        level: Vec<String>,
        recipes: &mut RecipesByPath,
    ) -> Result<Vec<String>, zk::Error> {
        let mut lists = self.list_all(level).await?;
        let own = lists
            .iter()
            .filter(|(_, (children, stat))| directory::may_tell(children, stat));
        let own = own.map(|(path, _)| path.clone()).collect();
        let mut contents = self.read_all(own).await?;
        let directories: Vec<_> = lists
            .drain()
            .map(|(path, list)| {
                let data = contents.remove(&path);
                Directory::new(path, list, data).within(&self.scope)
            })
            .collect();
        let parts = directories.iter().flat_map(Directory::parts).collect();
        let parts = self.list_all(parts).await?;
        let nodes = directories.iter().flat_map(|dir| dir.nodes(&parts));
        let nodes = nodes.collect();
        let nodes = self.read_all(nodes).await?;
        let mut below = Vec::new();
        for directory in directories {
            if self.is_outdated(&directory, &nodes) {
                below.push(directory.into_path());
                continue;
            }
            below.extend(directory.below(&parts, &nodes));
            if directory.is_in_doubt() {
                self.in_doubt.push(directory.into_path());
                continue;
            }
            let found = directory.conclude(&parts, &nodes);
            if !found.is_empty() {
                recipes.insert(directory.into_path(), found);
            }
        }
        Ok(below)
    }

    /// Returns whether the list of a directory has contenders that were gone when they were read. The lock need not be free: the next
    /// holder may have come after the list. Such a directory is looked at again, a few times at most.
    fn is_outdated(&mut self, directory: &Directory, nodes: &Contents) -> bool {
        let has_gone = directory
            .contenders()
            .any(|path| !nodes.contains_key(&path) && !self.unreadable.contains(&path));
        if !has_gone {
            return false;
        }
        let looks = self.looks.entry(directory.path().to_owned()).or_default();
        *looks += 1;
        *looks < LOOKS_MAX
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
