//! How far locks scale on an ensemble: waiters, locks, sessions and hand-overs.
//!
//! `cargo run --release -p bellwether-bench --example scale` starts three members of Apache's server on this machine, with fsync on.
//! docs/ensembles.md has the results of one run.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bellwether::{Client, Lock, LockGuard, Waiting, connect};
use bellwether_testkit::{Apache, Ensemble};
use clap::Parser;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many calls are under way at a time while something is built up.
const TOGETHER: usize = 64;

/// How many hand-overs of a lock with many waiters are measured.
const TURNS: u32 = 100;

const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// Measures how far locks scale on an ensemble of three members on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// How long each rate is measured, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Waiters of one lock.
    #[arg(long, default_value_t = 10_000)]
    waiters: usize,
    /// Locks that are held at the same time.
    #[arg(long, default_value_t = 20_000)]
    locks: usize,
    /// Sessions that hold a lock each.
    #[arg(long, default_value_t = 1_000)]
    sessions: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let seconds = Duration::from_secs_f64(args.seconds);
    let builder = Apache::builder()
        .tick(Duration::from_secs(3))
        .property("zookeeper.forceSync", "yes");
    let ensemble = builder.ensemble(3).await?;
    println!("| what | measured |\n|---|---|");
    for contenders in [2, 10, 100] {
        let rate = hand_overs(&ensemble, 1, contenders, seconds).await?;
        println!("| hand-overs of one lock, {contenders} contenders | {rate:.0}/s |");
    }
    let rate = hand_overs(&ensemble, 50, 2, seconds).await?;
    println!("| hand-overs of 50 locks, 2 contenders each | {rate:.0}/s |");
    waiters(&ensemble, args.waiters).await?;
    locks(&ensemble, args.locks).await?;
    sessions(&ensemble, args.sessions, seconds).await
}

async fn open(ensemble: &Ensemble) -> Result<Client> {
    let opened = connect(ensemble.connect_string()).session_timeout(SESSION_TIMEOUT);
    Ok(opened.connect_timeout(SESSION_TIMEOUT).await?)
}

async fn open_many(ensemble: &Ensemble, count: usize) -> Result<Vec<Client>> {
    let opening = (0..count).map(|_| open(ensemble));
    stream::iter(opening)
        .buffer_unordered(TOGETHER)
        .try_collect()
        .await
}

/// Hand-overs per second of all locks together. Each contender has a session of its own.
async fn hand_overs(
    ensemble: &Ensemble,
    locks: usize,
    contenders: usize,
    time: Duration,
) -> Result<f64> {
    let (granted, is_over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for (index, client) in open_many(ensemble, locks * contenders)
        .await?
        .into_iter()
        .enumerate()
    {
        let (granted, is_over) = (Arc::clone(&granted), Arc::clone(&is_over));
        tasks.spawn(async move {
            let lock = Lock::new(&client, format!("/over-{contenders}-{}", index % locks));
            while !is_over.load(Ordering::Relaxed) {
                let guard = lock.acquire().await?;
                granted.fetch_add(1, Ordering::Relaxed);
                guard.release().await?;
            }
            client.close().await;
            Ok(())
        });
    }
    // All of them are at work.
    pass(time / 5).await;
    let (before, began) = (granted.load(Ordering::Relaxed), Instant::now());
    pass(time).await;
    let count = granted.load(Ordering::Relaxed) - before;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(rate)
}

/// A lock with many waiters: how fast they join, and how long it takes until the next one has it.
async fn waiters(ensemble: &Ensemble, count: usize) -> Result<()> {
    let clients = open_many(ensemble, 20).await?;
    let guard = Lock::new(&clients[0], "/crowd").acquire().await?;
    let began = Instant::now();
    let joining = (0..count).map(|index| {
        let lock = Lock::new(&clients[index % clients.len()], "/crowd");
        async move { lock.line_max(usize::MAX).join().await }
    });
    let waiting: Vec<_> = stream::iter(joining)
        .buffered(TOGETHER)
        .try_collect()
        .await?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("| {count} waiters of one lock: they join at | {rate:.0}/s |");
    let mut turns: FuturesUnordered<_> = waiting.into_iter().map(Waiting::turn).collect();
    let mut next = async |guard: LockGuard| -> Result<LockGuard> {
        guard.release().await?;
        Ok(turns.next().await.context("all had their turn")??)
    };
    // All of them watch by then.
    let mut guard = next(guard).await?;
    let began = Instant::now();
    for _ in 0..TURNS {
        guard = next(guard).await?;
    }
    let each = began.elapsed() / TURNS;
    println!("| {count} waiters of one lock: a hand-over takes | {each:.1?} |");
    drop(guard);
    for client in clients {
        client.close().await;
    }
    Ok(())
}

/// Locks that are held at the same time, and what they take of the leader's memory.
async fn locks(ensemble: &Ensemble, count: usize) -> Result<()> {
    let clients = open_many(ensemble, 20).await?;
    let began = Instant::now();
    let acquiring = (0..count).map(|index| {
        let lock = Lock::new(&clients[index % clients.len()], format!("/held/{index}"));
        async move { lock.acquire().await }
    });
    let guards: Vec<_> = stream::iter(acquiring)
        .buffer_unordered(TOGETHER)
        .try_collect()
        .await?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("| {count} locks held by 20 sessions: acquired at | {rate:.0}/s |");
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("| of these held at the end | {held} |");
    let began = Instant::now();
    for client in clients {
        client.close().await;
    }
    println!(
        "| the 20 sessions closed, and {count} nodes deleted with them, in | {:.1?} |",
        began.elapsed()
    );
    drop(guards);
    Ok(())
}

/// Sessions that hold a lock each, and what their heartbeats cost the members.
async fn sessions(ensemble: &Ensemble, count: usize, time: Duration) -> Result<()> {
    let began = Instant::now();
    let clients = open_many(ensemble, count).await?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("| {count} sessions: opened at | {rate:.0}/s |");
    let acquiring = clients.iter().enumerate().map(|(index, client)| {
        let lock = Lock::new(client, format!("/session-{index}"));
        async move { lock.acquire().await }
    });
    let guards: Vec<_> = stream::iter(acquiring)
        .buffer_unordered(TOGETHER)
        .try_collect()
        .await?;
    let before = processor_time(ensemble)?;
    let began = Instant::now();
    pass(time * 4).await;
    let seconds = began.elapsed().as_secs_f64();
    let shares: Vec<String> = before
        .iter()
        .zip(processor_time(ensemble)?)
        .map(|(before, after)| format!("{:.0} %", (after - before) * 100.0 / seconds))
        .collect();
    let t = SESSION_TIMEOUT.as_secs();
    println!(
        "| {count} sessions that hold a lock each, T = {t} s: processor time of the members | {} |",
        shares.join(", ")
    );
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("| of these held at the end | {held} |");
    Ok(())
}

/// The seconds of processor time that each member has used.
fn processor_time(ensemble: &Ensemble) -> Result<Vec<f64>> {
    (0..ensemble.size())
        .map(|index| {
            let pid = ensemble.pid(index).context("it runs")?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let (_, rest) = stat
                .rsplit_once(')')
                .context("the name is in parentheses")?;
            // User and system time, the 14th and 15th field, in hundredths.
            let times = rest.split_whitespace().skip(11).take(2);
            let hundredths: f64 = times.map(|time| time.parse::<f64>().unwrap_or(0.0)).sum();
            Ok(hundredths / 100.0)
        })
        .collect()
}

async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}
