//! Compares the time of `bellwether lock x -- true` with `true`, `flock` and zkCli.
//!
//! `crates/bench/compare/command` builds and runs it, and keeps the result under `results`. All rows are measured in
//! turn, one process at a time, so that a change of the machine's speed affects all of them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use bellwether_bench::measure::latency::Latencies;
use bellwether_bench::measure::machine::machine;
use bellwether_bench::server_process::{Kind, ServerProcess};
use clap::Parser;

/// Debian's zkCli, without its wrapper script.
const ZKCLI: [&str; 4] = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-cp",
    "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/commons-cli.jar",
    "org.apache.zookeeper.ZooKeeperMain",
];

/// The goal for how much longer a command under a lock takes than under `flock`, on a running server.
const WARM_GOAL_MS: f64 = 10.0;

/// The goal for the first command, which starts the local server.
const FIRST_USE_GOAL_MS: f64 = 300.0;

/// Measures the cost of a command under a lock.
#[derive(Debug, Parser)]
struct Args {
    /// Runs of each row; a fifth of them for slow rows.
    #[arg(long, default_value_t = 50)]
    runs: usize,
    /// The `bellwether` to measure.
    #[arg(long)]
    command: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let bellwether = args.command.canonicalize()?;
    let folder = tempfile::tempdir()?;
    let server = ServerProcess::start(&Kind::Ours(bellwether.clone()), folder.path(), "")?;
    let state = folder.path().join("state");
    let lock_file = folder.path().join("lock");
    let mut rows = [
        Row::new("`true`", args.runs, || Command::new("true")),
        Row::new("`flock FILE true`", args.runs, || {
            let mut flock = Command::new("flock");
            flock.arg(&lock_file).arg("true");
            flock
        }),
        Row::new("`bellwether lock x -- true`, served", args.runs, || {
            let mut lock = lock(&bellwether, &state);
            lock.env("BELLWETHER_CONNECT", &server.address);
            lock
        }),
        Row::new(
            "`bellwether lock x -- true`, local, warm",
            args.runs,
            || lock(&bellwether, &state),
        ),
        Row::new(
            "the same, first use: starts the server",
            args.runs / 5,
            || {
                stop(&bellwether, &state);
                lock(&bellwether, &state)
            },
        ),
        Row::new("zkCli `ls /`, served", args.runs / 5, || {
            let mut java = Command::new("java");
            java.args(ZKCLI)
                .args(["-server", &server.address, "ls", "/"]);
            java
        }),
    ];
    for run in 0..args.runs {
        for row in &mut rows {
            if run < row.runs {
                row.measure()?;
            }
        }
    }
    stop(&bellwether, &state);
    let times: Vec<_> = rows.into_iter().map(Row::times).collect();
    let report = report(&times)?;
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::write(results.join("command.md"), report)?;
    Ok(())
}

/// One command line, run repeatedly.
struct Row<'a> {
    name: &'static str,
    runs: usize,
    command: Box<dyn FnMut() -> Command + 'a>,
    latencies: Latencies,
}

impl<'a> Row<'a> {
    fn new(name: &'static str, runs: usize, command: impl FnMut() -> Command + 'a) -> Self {
        Self {
            name,
            runs: runs.max(1),
            command: Box::new(command),
            latencies: Latencies::default(),
        }
    }

    fn measure(&mut self) -> Result<()> {
        let mut command = (self.command)();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        self.latencies.add(start.elapsed());
        ensure!(status.success(), "{}: {status}", self.name);
        Ok(())
    }

    fn times(self) -> Times {
        let sorted = self.latencies.sorted();
        let ms = |share| sorted.quantile_us(share) / 1000.0;
        Times {
            name: self.name,
            runs: self.runs,
            p50: ms(0.5),
            p99: ms(0.99),
            max: ms(1.0),
        }
    }
}

/// The result of a row, in milliseconds.
struct Times {
    name: &'static str,
    runs: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

fn report(times: &[Times]) -> Result<String> {
    let [bare, flock, served, local, first_use, _] = times else {
        unreachable!("there are six rows");
    };
    let mut report = format!("# The cost of a command under a lock\n\n{}\n\n", machine()?);
    report.push_str(
        "`crates/bench/compare/command`: each run is a process from start to end, rows in turn; milliseconds.\n",
    );
    report.push_str(
        "\n| what | runs | p50 | p99 | max | p50 more than `true` | than `flock` |\n|---|---|---|---|---|---|---|\n",
    );
    for row in times {
        let Times {
            name,
            runs,
            p50,
            p99,
            max,
        } = row;
        let (more, than_flock) = (p50 - bare.p50, p50 - flock.p50);
        writeln!(
            report,
            "| {name} | {runs} | {p50:.1} | {p99:.1} | {max:.1} | {more:.1} | {than_flock:.1} |"
        )?;
    }
    report.push_str("\n| goal | is | met |\n|---|---|---|\n");
    for (goal, value, limit) in [
        (
            "a lock on a running server takes, beyond `flock`,",
            served.p50 - flock.p50,
            WARM_GOAL_MS,
        ),
        (
            "a lock on the warm local server takes, beyond `flock`,",
            local.p50 - flock.p50,
            WARM_GOAL_MS,
        ),
        ("first use takes", first_use.p50, FIRST_USE_GOAL_MS),
    ] {
        let met = if value <= limit { "yes" } else { "no" };
        writeln!(
            report,
            "| {goal} at most {limit} ms | {value:.1} ms | {met} |"
        )?;
    }
    Ok(report)
}

fn lock(bellwether: &Path, state: &Path) -> Command {
    let mut command = Command::new(bellwether);
    command
        .env("BELLWETHER_LOCAL", state)
        .env_remove("BELLWETHER_CONNECT")
        .args(["lock", "x", "--", "true"]);
    command
}

/// Stops the local server; a failure shows in the next row.
fn stop(bellwether: &Path, state: &Path) {
    let _ = Command::new(bellwether)
        .env("BELLWETHER_LOCAL", state)
        .args(["--quiet", "local", "stop"])
        .status();
}
