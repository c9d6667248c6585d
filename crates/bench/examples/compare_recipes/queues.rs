//! The queue beside those of other libraries, alternately, in one run: see `compare/queues`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bellwether_bench::comparison::Bound;
use bellwether_bench::figures::Figures;
use bellwether_bench::machine::machine;
use bellwether_bench::peer::{Peer, Task};
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_testkit::FaultProxy;
use clap::Parser;

/// Compares the queue with those of other libraries.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    server: PathBuf,
    /// The example `rust_peer`.
    #[arg(long)]
    rust_peer: String,
    /// How Curator's peer is started.
    #[arg(long)]
    curator_peer: String,
    /// How kazoo's peer is started.
    #[arg(long)]
    kazoo_peer: String,
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For how long turns are counted each time.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many consumers there are.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    consumers: Vec<usize>,
    /// How many items are drained, by one consumer.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    drained: Vec<usize>,
    /// A short trial, whose result is not kept.
    #[arg(long)]
    quick: bool,
    /// Where the result is kept.
    #[arg(long, default_value = "crates/bench/results")]
    results: PathBuf,
}

const OURS: &str = "ours";
const EMBEDDED: &str = "ours, embedded server";
const PEERS: [&str; 2] = ["Curator", "kazoo"];

/// Of ours on Apache's server, in units of the best peer's figure.
const GOAL: Bound = Bound::AtLeast(2.0);

/// A candidate: its column, the library in its process, and the server that it is measured on.
struct Candidate {
    column: &'static str,
    peer: Peer,
    address: String,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.quick {
        args.rounds = 1;
        args.seconds = 1.0;
        args.drained = vec![1000];
    }
    let apache_folder = tempfile::tempdir()?;
    let embedded_folder = tempfile::tempdir()?;
    let apache = ServerProcess::start(&Kind::Apache, apache_folder.path(), "")?;
    let embedded =
        ServerProcess::start(&Kind::Ours(args.server.clone()), embedded_folder.path(), "")?;
    let ours = format!("{} bellwether", args.rust_peer);
    let candidate = |column, command: &str, server: &ServerProcess| {
        anyhow::Ok(Candidate {
            column,
            peer: Peer::of_command(command)?,
            address: server.address.clone(),
        })
    };
    let mut candidates = [
        candidate(OURS, &ours, &apache)?,
        candidate(EMBEDDED, &ours, &embedded)?,
        candidate(PEERS[0], &args.curator_peer, &apache)?,
        candidate(PEERS[1], &args.kazoo_peer, &apache)?,
    ];
    let mut figures = Figures::default();
    // Nobody is measured cold: the first round is thrown away.
    measure(&args, 0, &mut candidates, &mut Figures::default())?;
    for round in 1..=args.rounds {
        measure(&args, round, &mut candidates, &mut figures)?;
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let mut drains = Vec::new();
    for &items in &args.drained {
        drains.push(runtime.block_on(drain(&apache.address, items))?);
    }
    let page = page(&args, &figures, &drains)?;
    println!("\n{page}");
    if !args.quick {
        let file = args.results.join("queues.md");
        std::fs::create_dir_all(&args.results)?;
        std::fs::write(&file, page)?;
        println!("kept in {}", file.display());
    }
    Ok(())
}

/// One round: every candidate with every number of consumers.
fn measure(
    args: &Args,
    round: usize,
    candidates: &mut [Candidate],
    figures: &mut Figures,
) -> Result<()> {
    let duration = Duration::from_secs_f64(args.seconds);
    for &consumers in &args.consumers {
        for Candidate {
            column,
            peer,
            address,
        } in &mut *candidates
        {
            let task = Task {
                recipe: "queue".to_owned(),
                address: address.clone(),
                path: format!("/{}-{consumers}-{round}", column.replace([',', ' '], "-")),
                contenders: consumers,
                sessions: consumers,
                warm_up: duration / 2,
                duration,
            };
            let outcome = peer
                .run(&task)
                .with_context(|| format!("{column}, round {round}: {task}"))?;
            #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
            let per_second = outcome.turns as f64 / outcome.seconds;
            println!("{}", figures.add(&row(consumers), "/s", column, per_second));
        }
    }
    Ok(())
}

/// What it takes to empty a queue: how many items, how long, and the requests by kind.
async fn drain(address: &str, items: usize) -> Result<(usize, Duration, String)> {
    let proxy = FaultProxy::start(address).await?;
    let connect = bellwether::connect(proxy.connect_string());
    let client = connect.session_timeout(Duration::from_secs(60)).await?;
    let queue = bellwether::Queue::new(&client, format!("/drained-{items}"));
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
    Ok((items, time, counts.join(", ")))
}

fn row(consumers: usize) -> String {
    match consumers {
        1 => "1 consumer".to_owned(),
        many => format!("{many} consumers"),
    }
}

fn page(args: &Args, figures: &Figures, drains: &[(usize, Duration, String)]) -> Result<String> {
    let mut page = format!(
        "# The queue beside those of other libraries\n\n{}\n\n\
         `crates/bench/compare/queues --rounds {} --seconds {}`, syncs on; medians, with the range of the rounds. \
         Apache ZooKeeper 3.8 unless the embedded server is named; a session for each consumer, all consumers of a \
         library in one process. Each consumer puts an item of 100 bytes, takes one and acknowledges it, over and over, \
         beside 50 items for each that stay. The others in their safe form: Curator's `DistributedQueue` with a lock path, \
         which puts in the background, and kazoo's `LockingQueue`.\n\n",
        machine()?,
        args.rounds,
        args.seconds,
    );
    let columns = [&[OURS, EMBEDDED][..], &PEERS[..]].concat();
    writeln!(
        page,
        "| items put, taken, acknowledged | {} | ours to the best peer | goal |",
        columns.join(" | ")
    )?;
    writeln!(page, "|---{}|---|---|", "|---".repeat(columns.len()))?;
    for &consumers in &args.consumers {
        let row = row(consumers);
        write!(page, "| {row} ")?;
        for column in &columns {
            let spread = figures.spread(&row, column);
            let spread = spread.context("everybody is measured")?;
            write!(page, "| {} ", spread.with_range("/s"))?;
        }
        let ratio = figures.to_best(&row, OURS, &PEERS)?;
        writeln!(page, "| {ratio:.2} | {} |", GOAL.verdict(ratio))?;
    }
    writeln!(page, "\n## Draining a queue, by one consumer\n")?;
    for (items, time, counts) in drains {
        writeln!(page, "- {items} items in {time:.2?}: {counts}")?;
    }
    writeln!(page, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(page)
}
