//! Compares the queue with those of other libraries, and measures how one is drained.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether_bench::comparison::Bound;
use bellwether_bench::contest::Candidate::{Curator, Embedded, Kazoo, Ours};
use bellwether_bench::contest::{Args, Candidate, Contest, Servers, Workload};
use bellwether_testkit::FaultProxy;

const EVERYBODY: &[Candidate] = &[Ours, Embedded, Curator, Kazoo];

/// The numbers of items that one consumer drains.
const DRAINED: [usize; 2] = [1000, 10_000];

pub(crate) fn compare(args: &Args, servers: &Servers) -> Result<()> {
    let contest = Contest {
        name: "queues",
        title: "The queue beside those of other libraries",
        about: "Each consumer puts an item of 100 bytes while it takes one and acknowledges it, over and over, beside 50 items \
                for each that stay. The others in their safe form: Curator's `DistributedQueue` with a lock path, which puts in \
                the background, and kazoo's `LockingQueue`.",
        candidates: EVERYBODY,
        workloads: [1, 4, 16].map(consumers).into(),
    };
    let figures = contest.run(args, servers, |_| Ok(()))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut more = String::from("\n## Draining a queue, by one consumer\n\n");
    for items in DRAINED {
        let (time, counts) = runtime.block_on(drain(&servers.apache.address, items))?;
        writeln!(more, "- {items} items in {time:.2?}: {counts}")?;
    }
    contest.keep(args, &contest.page(args, &figures, &more)?)
}

fn consumers(consumers: usize) -> Workload {
    Workload {
        row: match consumers {
            1 => "items put, taken and acknowledged, 1 consumer".to_owned(),
            many => format!("items put, taken and acknowledged, {many} consumers"),
        },
        recipe: "queue",
        contenders: consumers,
        count: |outcome| outcome.turns,
        candidates: EVERYBODY,
        rounds_max: usize::MAX,
        goals: vec![(Ours, Bound::AtLeast(2.0))],
    }
}

/// Drains a queue of `items` items: the time, and the requests by kind.
async fn drain(address: &str, items: usize) -> Result<(Duration, String)> {
    let proxy = FaultProxy::start(address).await?;
    let connect = bellwether::connect(proxy.connect_string());
    let client = connect.session_timeout(Duration::from_secs(60)).await?;
    let queue = bellwether::Queue::<Vec<u8>>::new(&client, format!("/drained-{items}"));
    for batch in vec![vec![b'x'; 100]; items].chunks(500) {
        queue.put_all(batch).await?;
    }
    proxy.reset_counts();
    let start = Instant::now();
    while let Some(claim) = queue.try_take().await? {
        claim.ack().await?;
    }
    let time = start.elapsed();
    let mut counts: Vec<_> = proxy
        .counts()
        .into_iter()
        .map(|(op, count)| format!("{count} {op:?}"))
        .collect();
    counts.sort();
    Ok((time, counts.join(", ")))
}
