//! How long a server takes to start from a million nodes, and how much memory it has then.
//!
//! Builds a folder through the embedded server, starts `bellwether serve` and Apache ZooKeeper in turn on
//! copies of it, from the log and from a snapshot, and keeps the result under `results`:
//!
//! `cargo build --release && cargo run --release -p bellwether-bench --example recovery`

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_server::{Config, Server};
use bellwether_testkit::{RawClient, Request};
use clap::Parser;
use tempfile::TempDir;

/// Nodes below each of `PARENTS` parents.
const CHILDREN: usize = 1000;
const PARENTS: usize = 1000;
const DATA_BYTES: usize = 100;

/// Requests on their way at a time while the folder is built.
const PIPELINE: usize = 500;

/// How long an answer may take while the folder is built.
const DEADLINE: Duration = Duration::from_secs(60);

/// Measures how long servers take to start from a million nodes.
#[derive(Debug, Parser)]
struct Args {
    /// How often each start is measured.
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let ours = binary()?;
    let mut report = machine();
    let from_log = build(&mut report).await?;
    let from_snapshot = copy(from_log.path())?;
    // A start leaves a snapshot of everything behind, and an end waits until it is written.
    server(from_snapshot.path()).await?.shutdown().await;
    let kinds = [("bellwether", Kind::Ours(ours)), ("Apache", Kind::Apache)];
    let mut rows =
        String::from("\n| from | server | ready after, s | RSS, MiB |\n|---|---|---|---|\n");
    for (from, folder) in [("log", &from_log), ("snapshot", &from_snapshot)] {
        writeln!(report, "- {from}: {}", sizes(folder.path())?)?;
        for _ in 0..args.runs {
            for (name, kind) in &kinds {
                let folder = copy(folder.path())?;
                let server = ServerProcess::start(kind, folder.path())?;
                let ready = server.started_in.as_secs_f64();
                let rss = server.resident_kib()? / 1024;
                let last = format!("/parent-{:04}/child-{:04}", PARENTS - 1, CHILDREN - 1);
                let mut client = RawClient::connect(&server.address).await?;
                client.call(Request::get_data(last)).await?.ok()?;
                writeln!(rows, "| {from} | {name} | {ready:.2} | {rss} |")?;
            }
        }
    }
    report.push_str(&rows);
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&results)?;
    fs::write(results.join("recovery.md"), &report)?;
    Ok(())
}

/// A folder in which all nodes are in the log, behind the snapshot of an empty tree.
async fn build(report: &mut String) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let server = server(folder.path()).await?;
    let mut client = RawClient::connect(server.addresses()[0]).await?;
    client.set_deadline(DEADLINE);
    let start = Instant::now();
    for parent in 0..PARENTS {
        let path = format!("/parent-{parent:04}");
        let mut requests = vec![Request::create(&path, "")];
        let child = |child| Request::create(format!("{path}/child-{child:04}"), [b'x'; DATA_BYTES]);
        requests.extend((0..CHILDREN).map(child));
        for part in requests.chunks(PIPELINE) {
            client.send_all(part).await?;
            for _ in part {
                client.receive_reply().await?.ok()?;
            }
        }
    }
    client.call(Request::CloseSession).await?.ok()?;
    server.shutdown().await;
    let elapsed = start.elapsed().as_secs_f64();
    writeln!(report, "- written in {elapsed:.1} s")?;
    Ok(folder)
}

async fn server(folder: &Path) -> Result<Server> {
    let config = Config {
        data_dir: Some(folder.join("data")),
        snap_count: usize::MAX,
        ..Config::default()
    };
    Ok(Server::start(config).await?)
}

/// The command, built by the same profile as this program.
fn binary() -> Result<PathBuf> {
    let deps = std::env::current_exe()?;
    let target = deps.ancestors().nth(2).context("no target folder")?;
    let binary = target.join("bellwether");
    if !binary.exists() {
        bail!("no {}: run cargo build --release first", binary.display());
    }
    Ok(binary)
}

/// What was measured, and where.
fn machine() -> String {
    let first = |path: &str, start: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(start));
        let value = line.and_then(|line| line.split_once(':'));
        value
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let mut report = String::from("# Start from a million nodes\n\n");
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    for (name, value) in [
        (
            "machine",
            format!(
                "{processors} × {}, {}",
                first("/proc/cpuinfo", "model name"),
                first("/proc/meminfo", "MemTotal")
            ),
        ),
        ("load before", load.trim().to_owned()),
        ("kernel", output("uname", &["-sr"])),
        (
            "java",
            output("sh", &["-c", "java -version 2>&1 | head -1"]),
        ),
        ("commit", output("git", &["rev-parse", "HEAD"])),
        (
            "command",
            "cargo build --release && cargo run --release -p bellwether-bench --example recovery"
                .into(),
        ),
        (
            "folder",
            format!(
                "{PARENTS} parents with {CHILDREN} children of {DATA_BYTES} bytes each, written by the embedded server"
            ),
        ),
    ] {
        report.push_str(&format!("- {name}: {value}\n"));
    }
    report
        .push_str("- ready: the first session is granted, counted from the start of the process\n");
    report.push_str("- each row: one start on a fresh copy\n");
    report
}

/// The files of a folder, and how much of each is really on disk.
fn sizes(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(version(folder))? {
        let entry = entry?;
        let mib = (entry.metadata()?.blocks() * 512) >> 20;
        files.push(format!("{} {mib} MiB", entry.file_name().to_string_lossy()));
    }
    files.sort();
    Ok(files.join(", "))
}

fn copy(folder: &Path) -> Result<TempDir> {
    let copy = tempfile::tempdir()?;
    fs::create_dir_all(version(copy.path()))?;
    for entry in fs::read_dir(version(folder))? {
        let entry = entry?;
        fs::copy(entry.path(), version(copy.path()).join(entry.file_name()))?;
    }
    Ok(copy)
}

fn version(folder: &Path) -> PathBuf {
    folder.join("data/version-2")
}
