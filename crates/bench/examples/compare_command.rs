//! What `bellwether lock x -- true` costs, beside `true` itself, `flock` and zkCli.
//!
//! `crates/bench/compare/command` builds and runs it, and keeps the result under `results`. All rows are measured in
//! turn, one process at a time, so that a change of the machine's mood hits all of them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use bellwether_bench::latency::Latencies;
use bellwether_bench::machine::machine;
use bellwether_bench::server_process::{Kind, ServerProcess};
use clap::Parser;

/// Debian's zkCli, without the shell script around it.
const ZKCLI: [&str; 4] = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-cp",
    "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/commons-cli.jar",
    "org.apache.zookeeper.ZooKeeperMain",
];

/// What a command under a lock may cost more than the bare one, warm.
const WARM_GOAL_MS: f64 = 25.0;

/// What the first command may take that starts the local server.
const FIRST_USE_GOAL_MS: f64 = 300.0;

/// Measures what a command under a lock costs.
#[derive(Debug, Parser)]
struct Args {
    /// How often each row is measured; the slow ones a fifth as often.
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

/// One command line, run again and again.
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

/// What a row has come to, in milliseconds.
struct Times {
    name: &'static str,
    runs: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

fn report(times: &[Times]) -> Result<String> {
    let [bare, _, served, local, first_use, _] = times else {
        unreachable!("there are six rows");
    };
    let mut report = format!("# The cost of a command under a lock\n\n{}\n\n", machine()?);
    report.push_str(
        "`crates/bench/compare/command`: each run is a process from start to end, rows in turn; milliseconds.\n",
    );
    report.push_str(
        "\n| what | runs | p50 | p99 | max | p50 more than `true` |\n|---|---|---|---|---|---|\n",
    );
    for row in times {
        let Times {
            name,
            runs,
            p50,
            p99,
            max,
        } = row;
        let more = p50 - bare.p50;
        writeln!(
            report,
            "| {name} | {runs} | {p50:.1} | {p99:.1} | {max:.1} | {more:.1} |"
        )?;
    }
    report.push_str("\n| goal | is | met |\n|---|---|---|\n");
    for (goal, value, limit) in [
        (
            "a lock on a running server adds",
            served.p50 - bare.p50,
            WARM_GOAL_MS,
        ),
        (
            "a lock on the warm local server adds",
            local.p50 - bare.p50,
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

/// Ends the local server; what went wrong shows in the next row.
fn stop(bellwether: &Path, state: &Path) {
    let _ = Command::new(bellwether)
        .env("BELLWETHER_LOCAL", state)
        .args(["--quiet", "local", "stop"])
        .status();
}
