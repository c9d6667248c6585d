//! The embedded server beside Apache's, alternately, in one run: see `compare/server`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bellwether_bench::fan_out;
use bellwether_bench::latency::{Latencies, Sorted};
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

/// One figure, in each round, of each server.
struct Row {
    name: &'static str,
    unit: &'static str,
    ours: Vec<f64>,
    apache: Vec<f64>,
}

/// What is measured of one server in one round, in the order of the table.
type Figures = Vec<(&'static str, &'static str, f64)>;

fn main() -> Result<()> {
    let args = Args::parse();
    let mut rows: Vec<Row> = Vec::new();
    let mut raw = String::new();
    for round in 1..=args.rounds {
        for (who, kind) in [
            ("ours", Kind::Ours(args.server.clone())),
            ("apache", Kind::Apache),
        ] {
            let figures = measure(&kind, &args).with_context(|| format!("{who}, round {round}"))?;
            for (name, unit, value) in figures {
                let line = format!("round {round} {who:6} {name}: {value:.1} {unit}");
                println!("{line}");
                writeln!(raw, "{line}")?;
                let row = match rows.iter_mut().find(|row| row.name == name) {
                    Some(row) => row,
                    None => {
                        rows.push(Row {
                            name,
                            unit,
                            ours: Vec::new(),
                            apache: Vec::new(),
                        });
                        rows.last_mut().expect("just pushed")
                    }
                };
                if who == "ours" {
                    row.ours.push(value)
                } else {
                    row.apache.push(value)
                }
            }
        }
    }
    let report = report(&args, &rows, &raw)?;
    println!("{report}");
    let file = args.results.join("server.md");
    std::fs::create_dir_all(&args.results)?;
    std::fs::write(&file, report)?;
    println!("kept in {}", file.display());
    Ok(())
}

fn measure(kind: &Kind, args: &Args) -> Result<Figures> {
    let mut figures = Figures::new();
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
    let mut fan_out: Vec<f64> = fan_out::run(&server.address, 1000, 10)?
        .into_iter()
        .map(ms)
        .collect();
    figures.push(("one change to 1,000 watchers", "ms", median(&mut fan_out)));
    drop(server);
    figures.push(("memory, 100,000 nodes", "MiB", memory_with_nodes(kind)?));
    figures.push(("loopback round trip, p50", "us", loopback_us()?));
    figures.push(("fdatasync, p50", "us", fdatasync_us(folder.path())?));
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

/// A round trip of 100 bytes between two threads.
fn loopback_us() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; 100];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut latencies = Latencies::default();
    let mut bytes = [0; 100];
    for _ in 0..20_000 {
        let start = Instant::now();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        latencies.add(start.elapsed());
    }
    drop(stream);
    echo.join().expect("the echo does not panic")?;
    Ok(latencies.sorted().quantile_us(0.5))
}

/// A sync of 200 bytes into a file that was made long before.
fn fdatasync_us(folder: &Path) -> Result<f64> {
    let mut file = File::create(folder.join("sync"))?;
    file.set_len(64 << 20)?;
    file.sync_all()?;
    let mut latencies = Latencies::default();
    for _ in 0..500 {
        let start = Instant::now();
        file.write_all(&[1; 200])?;
        file.sync_data()?;
        latencies.add(start.elapsed());
    }
    Ok(latencies.sorted().quantile_us(0.5))
}

fn report(args: &Args, rows: &[Row], raw: &str) -> Result<String> {
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output()?;
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or_default();
    let cores = std::thread::available_parallelism()?;
    let mut text = format!(
        "# The embedded server beside Apache ZooKeeper 3.8\n\n\
         commit {}, {} cores of {}, {} rounds of {} s a load, syncs on; medians, with the range of the rounds\n\n\
         | what | ours | Apache | ours / Apache |\n|---|---|---|---|\n",
        String::from_utf8_lossy(&commit.stdout).trim(),
        cores,
        cpu.trim_start_matches([' ', '\t', ':']),
        args.rounds,
        args.seconds,
    );
    for row in rows {
        let mut ours = row.ours.clone();
        let mut apache = row.apache.clone();
        let (our_median, their_median) = (median(&mut ours), median(&mut apache));
        writeln!(
            text,
            "| {} | {} | {} | {:.2} |",
            row.name,
            shown(&ours, our_median, row.unit),
            shown(&apache, their_median, row.unit),
            our_median / their_median
        )?;
    }
    writeln!(text, "\n## Raw\n\n```\n{raw}```")?;
    Ok(text)
}

/// The median and the range of sorted values.
fn shown(sorted: &[f64], median: f64, unit: &str) -> String {
    let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
    let digits = usize::from(last < 100.0);
    format!("{median:.digits$} {unit} ({first:.digits$} to {last:.digits$})")
}

/// Sorts, and takes the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
