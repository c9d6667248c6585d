//! The embedded server beside Apache's, alternately, in one run: see `compare/server`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::fan_out;
use bellwether_bench::figures::{Figures, commit_and_machine, median};
use bellwether_bench::floor;
use bellwether_bench::latency::Sorted;
use bellwether_bench::load::{Load, Work};
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_bench::wire::Wire;
use bellwether_testkit::{Create, Request};
use clap::Parser;

/// Compares the embedded server with Apache's.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    server: PathBuf,
    /// How often each server is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For how long each load runs.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Where the result is kept.
    #[arg(long, default_value = "crates/bench/results")]
    results: PathBuf,
}

const OURS: &str = "ours";
const APACHE: &str = "Apache";

/// What is measured of one server in one round, in the order of the table.
type Measured = Vec<(&'static str, &'static str, f64)>;

fn main() -> Result<()> {
    let args = Args::parse();
    let mut figures = Figures::default();
    for round in 1..=args.rounds {
        for (who, kind) in [
            (OURS, Kind::Ours(args.server.clone())),
            (APACHE, Kind::Apache),
        ] {
            let measured =
                measure(&kind, &args).with_context(|| format!("{who}, round {round}"))?;
            for (name, unit, value) in measured {
                println!("{}", figures.add(name, unit, who, value));
            }
        }
    }
    let report = report(&args, &figures)?;
    println!("{report}");
    let file = args.results.join("server.md");
    std::fs::create_dir_all(&args.results)?;
    std::fs::write(&file, report)?;
    println!("kept in {}", file.display());
    Ok(())
}

fn measure(kind: &Kind, args: &Args) -> Result<Measured> {
    let mut figures = Measured::new();
    let folder = tempfile::tempdir()?;
    let server = ServerProcess::start(kind, folder.path())?;
    figures.push(("start to first reply", "ms", ms(server.started_in)));
    figures.push(("memory, idle", "MiB", mib(server.resident_kib()?)));
    let load = |work, connections, depth| {
        let duration = Duration::from_secs_f64(args.seconds);
        Load {
            address: server.address.clone(),
            work,
            connections,
            depth,
            duration,
        }
    };
    // Nobody is measured cold.
    load(Work::Get, 8, 32).run()?;
    load(Work::Set, 8, 32).run()?;
    let p50 = |latencies: &Sorted| latencies.quantile_us(0.5);
    figures.push((
        "get, 1 x 1, p50",
        "us",
        p50(&load(Work::Get, 1, 1).run()?.latencies),
    ));
    figures.push((
        "get, 8 x 32",
        "/s",
        load(Work::Get, 8, 32).run()?.per_second,
    ));
    figures.push((
        "set, 1 x 1, p50",
        "us",
        p50(&load(Work::Set, 1, 1).run()?.latencies),
    ));
    figures.push((
        "set, 8 x 32",
        "/s",
        load(Work::Set, 8, 32).run()?.per_second,
    ));
    figures.push((
        "create, 8 x 32",
        "/s",
        load(Work::Create, 8, 32).run()?.per_second,
    ));
    figures.push((
        "create and delete, 8 x 1",
        "/s",
        load(Work::CreateDelete, 8, 1).run()?.per_second,
    ));
    figures.push((
        "sessions opened, 16 x 1",
        "/s",
        load(Work::Connect, 16, 1).run()?.per_second,
    ));
    let beside = std::thread::scope(|scope| {
        let writes = load(Work::Set, 1, 256);
        let writer = scope.spawn(move || writes.run());
        let reads = load(Work::Get, 1, 1).run()?;
        writer.join().expect("a load does not panic")?;
        anyhow::Ok(reads)
    })?;
    figures.push((
        "get p99 beside writes",
        "us",
        beside.latencies.quantile_us(0.99),
    ));
    let fan_out = fan_out::run(&server.address, 1000, 10)?
        .into_iter()
        .map(ms)
        .collect();
    figures.push(("one change to 1,000 watchers", "ms", median(fan_out)));
    drop(server);
    figures.push(("memory, 100,000 nodes", "MiB", memory_with_nodes(kind)?));
    figures.push(("loopback round trip, p50", "us", p50(&floor::loopback()?)));
    figures.push((
        "fdatasync, p50",
        "us",
        p50(&floor::fdatasync(folder.path())?),
    ));
    Ok(figures)
}

/// The memory of a fresh server with 100,000 nodes of 100 bytes.
fn memory_with_nodes(kind: &Kind) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let server = ServerProcess::start(kind, folder.path())?;
    let mut wire = Wire::connect(&server.address)?;
    wire.call(&Request::create("/n", ""))?;
    let create = Request::create_mode("/n/n-", vec![b'x'; 100], Create::PERSISTENT_SEQUENTIAL);
    let hundred = create.encode(1).repeat(100);
    for _ in 0..1000 {
        wire.send(&hundred)?;
        let mut answered = 0;
        while answered < 100 {
            answered += wire.count_replies()?;
        }
    }
    Ok(mib(server.resident_kib()?))
}

fn report(args: &Args, figures: &Figures) -> Result<String> {
    let mut text = format!(
        "# The embedded server beside Apache ZooKeeper 3.8\n\n\
         {}, {} rounds of {} s a load, syncs on; medians, with the range of the rounds\n\n\
         | what | ours | Apache | ours / Apache |\n|---|---|---|---|\n",
        commit_and_machine()?,
        args.rounds,
        args.seconds,
    );
    for row in figures.rows() {
        let summary = |who| figures.summary(row, who).context("both are measured");
        let (ours, apache) = (summary(OURS)?, summary(APACHE)?);
        let ratio = ours.median / apache.median;
        writeln!(text, "| {row} | {ours} | {apache} | {ratio:.2} |")?;
    }
    writeln!(text, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(text)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
