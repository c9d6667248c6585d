//! The cache and the watched value.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bellwether::cache::{CacheEvent, LiveTree};
use bellwether::state::Seen;
use bellwether::{Cache, Client, Config, Connect};
use bellwether_bench::peer::{PeerOutcome, Task};
use bellwether_bench::server_process::resident_kib;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;

/// Nodes in a directory.
const CHILDREN: usize = 1000;

/// One in this number of nodes changes.
const CHANGES_ONE_IN: usize = 10;

/// Nodes set in one transaction.
const BATCH: usize = 500;

pub(crate) async fn cache(task: &Task, connect: Connect) -> Result<PeerOutcome> {
    let client = connect.await?;
    let (tree, time) = load(&client, task).await?;
    let resident_kib = resident_kib("self")?;
    ensure!(tree.snapshot().len() > task.contenders, "nodes are missing");
    drop(tree);
    client.close().await;
    Ok(PeerOutcome {
        resident_kib,
        ..outcome(task.contenders, time)?
    })
}

pub(crate) async fn cache_changes(task: &Task, connect: Connect) -> Result<PeerOutcome> {
    let writer = connect.clone().await?;
    let client = connect.await?;
    let (tree, _) = load(&client, task).await?;
    let mut changes = tree.changes();
    let cached = cached(task);
    let paths: Vec<_> = (0..task.contenders / CHANGES_ONE_IN)
        .map(|node| format!("{cached}/{}/{}", node / CHILDREN, node % CHILDREN))
        .collect();
    let data = format!("{:<100}", task.path).into_bytes();
    let start = Instant::now();
    let written = tokio::spawn({
        let (paths, data) = (paths.clone(), data.clone());
        async move { set_all(&writer, &paths, &data).await }
    });
    let mut seen = HashSet::new();
    while seen.len() < paths.len() {
        match changes.next().await.context("the cache has ended")? {
            CacheEvent::Changed { path, node } if node.data == data => {
                seen.insert(path.to_string());
            }
            CacheEvent::Missed => {
                let is_new = |path: &&String| tree.get(path).is_some_and(|node| node.data == data);
                seen.extend(paths.iter().filter(is_new).cloned());
            }
            _ => {}
        }
    }
    let time = start.elapsed();
    written.await??;
    drop(tree);
    client.close().await;
    outcome(paths.len(), time)
}

pub(crate) async fn watchers(task: &Task, connect: Connect) -> Result<PeerOutcome> {
    let writer = Config::<String>::new(&connect.clone().await?, &task.path);
    writer.set(&"0".to_owned()).await?;
    let (told, mut tellings) = mpsc::unbounded_channel();
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..task.contenders {
        let client = connect.clone().await?;
        let mut values = Config::<String>::new(&client, &task.path).watch();
        let told = told.clone();
        watchers.spawn(async move {
            while let Some(Ok(seen)) = values.next().await {
                if let Seen::Value(entry) = seen {
                    // The counting task may have ended.
                    let _ = told.send(entry.value);
                }
            }
        });
    }
    drop(told);
    let start = Instant::now();
    let (mut change, mut counted_from) = (0, None);
    loop {
        let value = format!("{change}");
        let mut count = 0;
        while count < task.contenders {
            let told = tellings.recv().await.context("the watchers have ended")?;
            count += usize::from(told == value);
        }
        match counted_from {
            None if start.elapsed() >= task.warm_up => {
                counted_from = Some((Instant::now(), change))
            }
            Some((from, first)) if from.elapsed() >= task.duration => {
                let turns = (change - first) * task.contenders;
                let outcome = outcome(turns, from.elapsed())?;
                watchers.abort_all();
                return Ok(PeerOutcome {
                    all_turns: u64::try_from((change + 1) * task.contenders)?,
                    ..outcome
                });
            }
            _ => {}
        }
        change += 1;
        writer.set(&format!("{change}")).await?;
    }
}

/// The cached subtree.
fn cached(task: &Task) -> String {
    format!("/cached/{}", task.contenders)
}

async fn load(client: &Client, task: &Task) -> Result<(LiveTree, Duration)> {
    let start = Instant::now();
    let tree = Cache::new(client, cached(task)).open().await?;
    Ok((tree, start.elapsed()))
}

async fn set_all(client: &Client, paths: &[String], data: &[u8]) -> Result<()> {
    let zk = client.raw();
    let mut writes = Vec::new();
    for batch in paths.chunks(BATCH) {
        let mut writer = zk.new_multi();
        for path in batch {
            writer.set(path, data, None);
        }
        writes.push(writer.commit());
    }
    match try_join_all(writes).await {
        Ok(_) => Ok(()),
        Err(error) => bail!("{error}"),
    }
}

fn outcome(turns: usize, time: Duration) -> Result<PeerOutcome> {
    let turns = u64::try_from(turns)?;
    Ok(PeerOutcome {
        turns,
        all_turns: turns,
        seconds: time.as_secs_f64(),
        ..PeerOutcome::default()
    })
}
