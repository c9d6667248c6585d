//! The cache: a copy shows what was written, never goes back, and catches up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::cache::LiveTree;
use bellwether::zk::CreateMode;
use bellwether::{Cache, Client};
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use futures_util::StreamExt as _;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::worker::{Gone, Worker};

const PATH: &str = "/sim/cache";

/// Each worker sets its own node, and waits until its copy of all nodes shows the change.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies(Arc<Mutex<Written>>);

#[derive(Debug, Default)]
struct Written {
    /// The data of each version that was acknowledged, by path.
    data: BTreeMap<(String, i32), Vec<u8>>,
    count: u64,
    wrong: Option<String>,
}

impl Copies {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares a copy with what was written, and with its own previous state.
    fn look(&self, who: usize, copy: &LiveTree, before: &mut BTreeMap<String, i64>) {
        let mut written = self.written();
        for (path, node) in &copy.snapshot() {
            let known = written.data.get(&(path.to_string(), node.version.number()));
            if known.is_some_and(|data| *data != node.data) {
                written.wrong = Some(format!("worker {who} sees other data at {path}"));
            }
            let last = before.insert(path.to_string(), node.mzxid);
            if last.is_some_and(|last| last > node.mzxid) {
                written.wrong = Some(format!("worker {who} sees an older {path} than before"));
            }
        }
    }
}

impl Recipe for Copies {
    const NAME: &'static str = "cache";

    fn new(_: &Plan) -> Self {
        Self::default()
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let own = format!("{PATH}/worker{}", worker.who);
        for path in ["/sim", PATH, &own] {
            // It may exist already.
            let _ = client.raw().create(path, b"", CreateMode::Persistent).await;
        }
        let copy = match worker
            .unless_stopped(Cache::new(client, PATH).open())
            .await?
        {
            Ok(copy) => copy,
            Err(error) => {
                worker.note(What::Failed(error.to_string()));
                worker.pause().await;
                return Ok(());
            }
        };
        let mut changes = copy.changes();
        let mut before = BTreeMap::new();
        self.look(worker.who, &copy, &mut before);
        worker.pause().await;
        let data = {
            let mut written = self.written();
            written.count += 1;
            format!("{}", written.count).into_bytes()
        };
        let Ok(stat) = client.raw().set(&own, &data, None).await else {
            // Whether it was written is not known.
            worker.pause().await;
            return match client.raw().state().is_ended() {
                true => Err(Gone),
                false => Ok(()),
            };
        };
        let key = (own.clone(), stat.version);
        self.written().data.insert(key, data);
        let is_shown = || copy.get(&own).is_some_and(|node| node.mzxid >= stat.mzxid);
        while !is_shown() {
            let change = worker.unless_stopped(changes.next()).await?;
            self.look(worker.who, &copy, &mut before);
            if change.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.written().wrong.clone().map_or(Ok(()), Err)
    }

    fn may_stay(&self, path: &str) -> bool {
        path == "/sim" || path.starts_with(PATH)
    }
}
