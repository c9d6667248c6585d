//! Memory that rounds have used is free again when the workers are idle, however many rounds there were.

#![expect(clippy::unwrap_used, reason = "in tests")]

use std::alloc::System;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwether::{
    Barrier, Client, Config, Counter, Election, Group, Lock, Queue, RwLock, Semaphore, SimpleLock,
};
use bellwether_sim::{Gone, Plan, Recipe, Round, Worker, run};
use bellwether_testkit::History;
use cap::Cap;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes in use when all workers are idle.
static IDLE: AtomicUsize = AtomicUsize::new(0);

/// What rounds may leave in tables that have grown: a few bytes for each.
const GROWTH_MAX: usize = 16 << 10;

/// Uses many recipes in each round.
#[derive(Clone)]
struct Everything;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn use_all(client: &Client, name: &str) -> Result<(), AnyError> {
    Lock::new(client, "/sim/lock")
        .acquire()
        .await?
        .release()
        .await?;
    // Released by its drop.
    drop(
        Lock::new(client, "/sim/marked")
            .crash_mark()
            .acquire()
            .await?,
    );
    let simple = SimpleLock::new(client, "/sim/simple");
    simple.acquire().await?.release().await?;
    RwLock::new(client, "/sim/rwlock")
        .read()
        .await?
        .release()
        .await?;
    let semaphore = Semaphore::new(client, "/sim/semaphore", 2);
    semaphore.acquire().await?.release().await?;
    let election = Election::new(client, "/sim/election");
    election.campaign().await?.resign().await?;
    let barrier = Barrier::new(client, format!("/sim/barriers/{name}"));
    barrier.set().await?;
    barrier.lift().await?;
    let queue = Queue::<String>::new(client, "/sim/queue");
    queue.put(&name.to_owned()).await?;
    queue.take().await?.ack().await?;
    Counter::new(client, "/sim/counter").add(1).await?;
    let config = Config::<String>::new(client, "/sim/config");
    config.set(&name.to_owned()).await?;
    config.get().await?;
    let member = Group::new(client, "/sim/group").join_as(name, "").await?;
    member.leave().await;
    Ok(())
}

impl Recipe for Everything {
    const NAME: &'static str = "everything";

    fn new(_: &Plan) -> Self {
        Self
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let name = format!("worker{}", worker.who);
        if let Err(error) = worker.unless_stopped(use_all(client, &name)).await? {
            worker.wrong(format!("{name}: {error}"));
        }
        Ok(Round::Done)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        Ok(())
    }

    async fn finish(&self, _: &Client) -> Result<(), String> {
        IDLE.store(ALLOCATOR.allocated(), Ordering::Relaxed);
        Ok(())
    }

    fn may_stay(&self, _: &str) -> bool {
        true
    }
}

/// The rounds of a run that is `times` as long as others, and the bytes in use at its end.
fn measure(times: u64) -> (u64, usize) {
    let mut plan = Plan::of(1);
    plan.faults.clear();
    plan.duration = times * 1_500;
    // Quick servers, so that there are many rounds.
    plan.latency_max = 3;
    plan.servers.lag_max = 0;
    plan.servers.stalls = 0;
    plan.servers.link_delay = 0..3;
    let before = ALLOCATOR.allocated();
    let verdict = run::<Everything>(&plan);
    assert_eq!(verdict.violation, None);
    let bytes = IDLE.load(Ordering::Relaxed).checked_sub(before).unwrap();
    (verdict.rounds, bytes)
}

#[test]
fn memory_is_back_when_workers_are_idle() {
    // What is allocated once, whatever runs.
    measure(1);
    let (few, few_bytes) = measure(1);
    let (many, many_bytes) = measure(10);
    println!("{few} rounds: {few_bytes} bytes, {many} rounds: {many_bytes} bytes");
    assert!(many > 3 * few, "{few} and {many} rounds");
    assert!(
        many_bytes < few_bytes + GROWTH_MAX,
        "{few_bytes} bytes after {few} rounds, {many_bytes} after {many}"
    );
}
