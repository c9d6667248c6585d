//! The cache: a copy shows what was written, never goes back, and equals the nodes on the servers when all is quiet.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::cache::LiveTree;
use bellwether::zk::{self, CreateMode};
use bellwether::{Cache, Client};
use bellwether_testkit::History;
use futures_util::StreamExt as _;
use rand::Rng as _;

use super::catch_up::catch_up;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::worker::{Gone, Phase, Worker};

const PATH: &str = "/sim/cache";

/// Each worker creates, sets and deletes two nodes of its own, one below the other, and waits until its copy of all nodes shows that. When
/// the faults are over, no worker changes a node, and each copy must become equal to what the servers have.
#[derive(Debug, Clone)]
pub(crate) struct Copies {
    written: Arc<Mutex<Written>>,
    workers: usize,
}

#[derive(Debug, Default)]
struct Written {
    /// The path of each write: its data is its number.
    paths: Vec<String>,
    /// The zxid of each write that was seen or acknowledged, by its number.
    zxids: HashMap<usize, i64>,
    wrong: Option<String>,
}

impl Written {
    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A worker has learned the zxid of a write.
    fn learned(&mut self, who: usize, path: &str, data: &[u8], mzxid: i64) {
        let number = std::str::from_utf8(data).ok();
        let number = number.and_then(|text| text.parse::<usize>().ok());
        let Some(number) =
            number.filter(|number| self.paths.get(*number).is_some_and(|at| at == path))
        else {
            return self.wrong(format!(
                "worker {who} sees at {path} what was never written"
            ));
        };
        let first = *self.zxids.entry(number).or_insert(mzxid);
        if first != mzxid {
            self.wrong(format!(
                "worker {who} sees write {number} at {path} with zxid {mzxid}, but it had {first}"
            ));
        }
    }
}

/// What a copy has shown so far: of each node, its newest state, and whether it was there when last seen.
type Shown = BTreeMap<String, (i64, bool)>;

impl Copies {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data of the next write.
    fn next(&self, path: &str) -> Vec<u8> {
        let mut written = self.written();
        written.paths.push(path.to_owned());
        (written.paths.len() - 1).to_string().into_bytes()
    }

    /// The nodes of a worker.
    fn nodes(who: usize) -> [String; 2] {
        [
            format!("{PATH}/worker{who}"),
            format!("{PATH}/worker{who}/part"),
        ]
    }

    /// Compares a copy with what was written, and with its own previous states.
    fn look(&self, who: usize, copy: &LiveTree, shown: &mut Shown) {
        let snapshot = copy.snapshot();
        let mut written = self.written();
        for (path, node) in &snapshot {
            if **path == *PATH {
                continue;
            }
            written.learned(who, path, &node.data, node.mzxid);
            let last = shown.insert(path.to_string(), (node.mzxid, true));
            let is_older = last.is_some_and(|(newest, was_there)| match was_there {
                true => node.mzxid < newest,
                // It was deleted after that, and created again.
                false => node.czxid <= newest,
            });
            if is_older {
                written.wrong(format!("worker {who} sees an older {path} than before"));
            }
        }
        for (path, (_, is_there)) in shown {
            *is_there = snapshot.contains_key(path.as_str());
        }
    }

    /// Changes a node of the worker. Returns the path, and the zxid if it is there now.
    async fn change(
        &self,
        worker: &mut Worker,
        client: &Client,
    ) -> Result<(String, Option<i64>), zk::Error> {
        let raw = client.raw();
        let [top, part] = Self::nodes(worker.who);
        if worker.random.random_ratio(1, 4) {
            let path = match worker.random.random_bool(0.5) {
                true => part,
                false => {
                    ignore(raw.delete(&part, None).await, &zk::Error::NO_NODE)?;
                    top
                }
            };
            ignore(raw.delete(&path, None).await, &zk::Error::NO_NODE)?;
            return Ok((path, None));
        }
        for path in ["/sim", PATH] {
            let created = raw.create(path, b"", CreateMode::Persistent).await;
            ignore(created, &zk::Error::NODE_EXISTS)?;
        }
        let is_part = worker.random.random_bool(0.5);
        if is_part {
            let data = self.next(&top);
            let created = raw.create(&top, &data, CreateMode::Persistent).await;
            ignore(created, &zk::Error::NODE_EXISTS)?;
        }
        let path = if is_part { part } else { top };
        let data = self.next(&path);
        let stat = match raw.create(&path, &data, CreateMode::Persistent).await {
            Err(zk::Error::NODE_EXISTS) => raw.set(&path, &data, None).await?,
            created => created?.stat,
        };
        let mut written = self.written();
        written.learned(worker.who, &path, &data, stat.mzxid);
        Ok((path, Some(stat.mzxid)))
    }

    /// Waits until the copy shows a change, or all faults are over.
    async fn shows(
        &self,
        worker: &Worker,
        copy: &LiveTree,
        shown: &mut Shown,
        (path, mzxid): (String, Option<i64>),
    ) -> Result<bool, Gone> {
        let mut phase = worker.phase.clone();
        let mut changes = copy.changes();
        loop {
            self.look(worker.who, copy, shown);
            let node = copy.get(&path);
            let is_shown = match (&node, mzxid) {
                (Some(node), Some(mzxid)) => node.mzxid >= mzxid,
                (None, None) => true,
                _ => false,
            };
            if is_shown {
                return Ok(true);
            }
            let next = worker.unless_stopped(async {
                tokio::select! {
                    biased;
                    change = changes.next() => change.is_some(),
                    // A change without an answer may have come late, and undone this one. From now on the servers are asked.
                    _ = phase.wait_for(|phase| *phase >= Phase::Calm) => false,
                }
            });
            if !next.await? {
                return Ok(false);
            }
        }
    }

    /// Waits until the copy is equal to what the servers have.
    async fn equals(
        &self,
        worker: &mut Worker,
        client: &Client,
        copy: &LiveTree,
        shown: &mut Shown,
    ) -> Result<(), Gone> {
        loop {
            let read = worker.unless_stopped(self.read(client)).await?;
            self.look(worker.who, copy, shown);
            let nodes = copy.snapshot().into_iter();
            let nodes =
                nodes.map(|(path, node)| (path.to_string(), (node.mzxid, node.data.clone())));
            match read {
                Ok(Some(read)) if read == nodes.collect::<Nodes>() => return Ok(()),
                Ok(_) => {}
                Err(error) => worker.failed(&error),
            }
            worker.pause().await;
        }
    }

    /// Everything that the servers have; `None` if they are in no state to tell.
    async fn read(&self, client: &Client) -> Result<Option<Nodes>, zk::Error> {
        let raw = client.raw();
        if !catch_up(&raw).await {
            return Ok(None);
        }
        let mut nodes = Nodes::new();
        let all = (0..self.workers).flat_map(Self::nodes);
        for path in all.chain([PATH.to_owned()]) {
            match raw.get(&path).await {
                Ok((data, stat)) => drop(nodes.insert(path, (stat.mzxid, data.to_vec()))),
                Err(zk::Error::NO_NODE) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(nodes))
    }
}

/// Nodes by their paths: the zxid of the last change, and the data.
type Nodes = BTreeMap<String, (i64, Vec<u8>)>;

/// Takes one error for a success.
fn ignore<T>(result: Result<T, zk::Error>, error: &zk::Error) -> Result<(), zk::Error> {
    match result {
        Err(found) if found == *error => Ok(()),
        other => other.map(drop),
    }
}

impl Recipe for Copies {
    const NAME: &'static str = "cache";

    fn new(plan: &Plan) -> Self {
        Self {
            written: Arc::default(),
            workers: plan.workers,
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let cache = Cache::new(client, PATH);
        let copy = match worker.unless_stopped(cache.open()).await? {
            Ok(copy) => copy,
            Err(error) => {
                worker.failed(&error);
                worker.pause().await;
                return Ok(Round::Failed);
            }
        };
        let mut shown = Shown::new();
        self.look(worker.who, &copy, &mut shown);
        // Some copies are open for long, over many faults.
        for _ in 0..worker.random.random_range(1..=10) {
            worker.pause().await;
            if worker.is_calm() {
                break;
            }
            match self.change(worker, client).await {
                Ok(change) => {
                    self.shows(worker, &copy, &mut shown, change).await?;
                }
                // An earlier change without an answer has come late.
                Err(zk::Error::NO_NODE | zk::Error::NODE_EXISTS | zk::Error::NOT_EMPTY) => {}
                // Whether it was changed is not known.
                Err(error) => worker.failed(&error),
            }
        }
        if worker.is_calm() {
            self.equals(worker, client, &copy, &mut shown).await?;
        }
        Ok(Round::Done)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.written().wrong.clone().map_or(Ok(()), Err)
    }

    fn may_stay(&self, path: &str) -> bool {
        let mut nodes = (0..self.workers).flat_map(Self::nodes);
        ["/sim", PATH].contains(&path) || nodes.any(|node| node == path)
    }
}
