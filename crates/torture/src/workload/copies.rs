//! A live copy of nodes that all workers change.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether::cache::{CacheChanges, CacheEvent, LiveTree};
use bellwether::{Cache, Client, Config, Error, zk};
use bellwether_testkit::history::sights::Sight;
use futures_util::StreamExt as _;
use rand::Rng as _;
use tokio::time::timeout;

use super::{Phase, Worker, catch_up};
use crate::record::Did;

/// How long a worker waits until its copy shows its own change.
const CHANGE_MAX: Duration = Duration::from_secs(10);

/// Keeps a copy until the run ends. While there are faults, each worker changes nodes of its own and waits until its copy shows that.
/// Afterwards the copy must become equal to what the servers have.
pub(super) async fn run(mut worker: Worker, client: &Client) {
    let cache = Cache::new(client, &worker.path);
    let tree = loop {
        match worker.unless_stopped(cache.open()).await {
            None => return,
            Some(Ok(tree)) => break tree,
            Some(Err(error)) => worker.failed(&error).await,
        }
    };
    let follower = worker.beside();
    let changes = tree.changes();
    tokio::join!(follow(follower, changes), change(worker, client, &tree));
}

async fn follow(worker: Worker, mut changes: CacheChanges) {
    while let Some(Some(change)) = worker.unless_stopped(changes.next()).await {
        if let CacheEvent::Changed { path, node } = change {
            worker.note(Did::See(Sight::Shown {
                what: format!("{path} in process {}", worker.generation),
                version: node.mzxid,
            }));
        }
    }
}

async fn change(mut worker: Worker, client: &Client, tree: &LiveTree) {
    for number in 0.. {
        if worker.is_stopped() {
            return;
        }
        if worker.phase() == Phase::Faults {
            let value = worker.value(number);
            let delete = worker.random.random_ratio(1, 6);
            let changing = change_once(&worker, client, tree, (!delete).then_some(value));
            if let Some(Err(error)) = worker.unless_stopped(changing).await {
                worker.failed(&error).await;
            }
        } else if is_equal(&worker.path, client, tree)
            .await
            .is_ok_and(|is| is)
        {
            worker.note(Did::See(Sight::CaughtUp));
        }
        worker.pause().await;
    }
}

/// Sets or deletes the node of this worker, and waits until the copy shows it.
async fn change_once(
    worker: &Worker,
    client: &Client,
    tree: &LiveTree,
    value: Option<String>,
) -> Result<(), Error> {
    let path = format!("{}/n{}", worker.path, worker.who);
    let node = Config::new(client, &path);
    let mut changes = tree.changes();
    match &value {
        Some(value) => node.set(value).await?,
        None => drop(node.delete().await?),
    }
    let is_shown = || {
        let shown = tree.get(&path);
        shown.as_ref().map(|node| &node.data[..]) == value.as_deref().map(str::as_bytes)
    };
    let shown = async { while !is_shown() && changes.next().await.is_some() {} };
    if timeout(CHANGE_MAX, shown).await.is_ok() && is_shown() {
        worker.note(Did::See(Sight::CaughtUp));
    }
    Ok(())
}

/// Whether the copy has the nodes that the servers have, in the same versions.
async fn is_equal(path: &str, client: &Client, tree: &LiveTree) -> Result<bool, zk::Error> {
    if !catch_up(client).await {
        return Ok(false);
    }
    let raw = client.raw();
    let names = match raw.children(path).await {
        // Without a server during the faults, no worker has made it.
        Err(zk::Error::NO_NODE) => Vec::new(),
        names => names?,
    };
    let mut on_servers = BTreeMap::new();
    for name in names {
        let node = format!("{path}/{name}");
        if let Some(stat) = raw.exists(&node).await? {
            on_servers.insert(node, stat.mzxid);
        }
    }
    let copied = tree.snapshot().into_iter();
    let copied = copied.filter(|(node, _)| &**node != path);
    let copied: BTreeMap<String, i64> = copied
        .map(|(node, seen)| (node.to_string(), seen.mzxid))
        .collect();
    Ok(copied == on_servers)
}
