//! One request after the other: `exists` of an existing node, on one session.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use bellwether_bench::measure::context_switches;
use bellwether_bench::measure::latency::Latencies;
use bellwether_bench::peer::{PeerOutcome, RoundTrips, Task};
use bellwether_bench::wire::Wire;
use bellwether_client::Client;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request;
use bellwether_wire::stat::Stat;
use bytes::BytesMut;

use crate::{Library, SESSION_TIMEOUT, connect_plainly};

pub(crate) async fn exists(task: &Task, library: Library) -> Result<PeerOutcome> {
    let connect = Client::connect(&task.address).session_timeout(SESSION_TIMEOUT);
    match library {
        Library::Bellwether => bellwether(task, connect).await,
        Library::BellwetherOnRuntime | Library::BellwetherCurrentThread => {
            bellwether(task, connect.on_current_runtime()).await
        }
        Library::ZookeeperClient => zookeeper_client(task).await,
        Library::ByHand => by_hand(task).await,
        Library::Plain => bail!("no plain form of a request"),
    }
}

async fn bellwether(task: &Task, connect: bellwether_client::Connect) -> Result<PeerOutcome> {
    let client = connect.await?;
    let outcome = one_by_one(task, async || {
        Ok(client.exists(&task.path).await?.is_some())
    })
    .await;
    client.close().await;
    outcome
}

async fn zookeeper_client(task: &Task) -> Result<PeerOutcome> {
    let client = connect_plainly(task).await?;
    one_by_one(task, async || {
        Ok(client.check_stat(&task.path).await?.is_some())
    })
    .await
}

/// The bare socket: this thread writes, and waits in a read.
async fn by_hand(task: &Task) -> Result<PeerOutcome> {
    let mut wire = Wire::connect(&task.address)?;
    let mut out = BytesMut::new();
    one_by_one(task, async || {
        out.clear();
        request::put(&mut out, 1, Op::Exists, |out| {
            request::put_path_watch(out, &task.path, false);
        });
        wire.send(&out)?;
        Stat::decode(&mut Reader::new(&wire.receive_success()?))?;
        Ok(true)
    })
    .await
}

async fn one_by_one(
    task: &Task,
    mut exists: impl AsyncFnMut() -> Result<bool>,
) -> Result<PeerOutcome> {
    let (mut all_turns, start) = (0, Instant::now());
    while start.elapsed() < task.warm_up {
        ensure!(exists().await?, "{} is missing", task.path);
        all_turns += 1;
    }
    let mut latencies = Latencies::default();
    let switches = context_switches::of_this_process()?;
    let start = Instant::now();
    let mut now = start;
    while now - start < task.duration {
        ensure!(exists().await?, "{} is missing", task.path);
        let before = std::mem::replace(&mut now, Instant::now());
        latencies.add(now - before);
    }
    let switches = context_switches::of_this_process()? - switches;
    let turns = latencies.count();
    let sorted = latencies.sorted();
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    let switches = switches as f64 / turns as f64;
    let turns = u64::try_from(turns)?;
    Ok(PeerOutcome {
        turns,
        all_turns: all_turns + turns,
        seconds: (now - start).as_secs_f64(),
        round_trips: Some(RoundTrips {
            p50_us: sorted.quantile_us(0.5),
            p99_us: sorted.quantile_us(0.99),
            switches: Some(switches),
        }),
        ..PeerOutcome::default()
    })
}
