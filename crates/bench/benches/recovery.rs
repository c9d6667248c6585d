//! How long a server takes to start from a million nodes, and how much memory it has then.
//!
//! `cargo build --release && cargo bench -p bellwether-bench --bench recovery` builds a folder through the
//! embedded server, starts `bellwether serve` and Apache ZooKeeper on copies of it, once from the log and
//! once from a snapshot, and writes what it found to `results/recovery.md`.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bellwether_server::{Config, Server};
use bellwether_testkit::{RawClient, Request};
use tempfile::TempDir;
use tokio::time::timeout;

/// Nodes below each of `PARENTS` parents.
const CHILDREN: usize = 1000;
const PARENTS: usize = 1000;
const DATA_BYTES: usize = 100;

/// How often each start is measured.
const RUNS: usize = 3;

/// Requests on their way at a time while the folder is built.
const PIPELINE: usize = 500;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(300);

const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

#[tokio::main]
async fn main() -> Result<()> {
    let bellwether = binary()?;
    let mut report = machine();
    let from_log = build().await?;
    let from_snapshot = copy(from_log.path())?;
    // A start leaves a snapshot of everything behind, and an end waits until it is written.
    server(from_snapshot.path()).await?.shutdown().await;
    writeln!(
        report,
        "\n| start from | server | ready after, s | RSS, MiB | peak RSS, MiB |\n|---|---|---|---|---|"
    )?;
    for (kind, folder) in [("log", &from_log), ("snapshot", &from_snapshot)] {
        writeln!(report, "| {kind}: {} | | | | |", files(folder.path())?)?;
        for run in 0..2 * RUNS {
            let folder = copy(folder.path())?;
            let port = free_port()?;
            let (name, mut command) = if run % 2 == 0 {
                ("bellwether", serve(&bellwether, folder.path(), port))
            } else {
                ("Apache 3.8.0", apache(folder.path(), port)?)
            };
            let measured = measure(&mut command, port).await.context(name)?;
            let row = format!(
                "| {kind} | {name} | {:.2} | {} | {} |",
                measured.ready.as_secs_f64(),
                measured.rss_kib / 1024,
                measured.peak_kib / 1024
            );
            println!("{row}");
            writeln!(report, "{row}")?;
        }
    }
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&results)?;
    fs::write(results.join("recovery.md"), &report)?;
    println!("{report}");
    Ok(())
}

/// A folder in which all nodes are in the log, behind the snapshot of an empty tree.
async fn build() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let server = server(folder.path()).await?;
    let mut client = RawClient::connect(server.addresses()[0]).await?;
    client.set_deadline(START_MAX);
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
    println!(
        "{} nodes written in {:?}",
        PARENTS * CHILDREN,
        start.elapsed()
    );
    Ok(folder)
}

async fn server(folder: &Path) -> Result<Server> {
    let config = Config {
        data_dir: Some(folder.to_owned()),
        snap_count: usize::MAX,
        ..Config::default()
    };
    Ok(Server::start(config).await?)
}

struct Measured {
    ready: Duration,
    rss_kib: u64,
    peak_kib: u64,
}

/// A process that is killed when nobody needs it any more.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// From the start of the process to the first session, and the memory then.
async fn measure(command: &mut Command, port: u16) -> Result<Measured> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let start = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut process = Process(command.spawn()?);
    loop {
        if let Ok(Ok(mut client)) =
            timeout(Duration::from_millis(500), RawClient::connect(address)).await
        {
            let ready = start.elapsed();
            let path = format!("/parent-{:04}/child-{:04}", PARENTS - 1, CHILDREN - 1);
            client.call(Request::get_data(path)).await?.ok()?;
            let status = fs::read_to_string(format!("/proc/{}/status", process.0.id()))?;
            return Ok(Measured {
                ready,
                rss_kib: field(&status, "VmRSS:")?,
                peak_kib: field(&status, "VmHWM:")?,
            });
        }
        if let Some(status) = process.0.try_wait()? {
            bail!("ended with {status}");
        }
        if start.elapsed() > START_MAX {
            bail!("does not serve within {START_MAX:?}");
        }
        pause().await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when a server of another make listens"
)]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

fn field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number
        .context("no such line in the status of a process")?
        .parse()?)
}

fn serve(bellwether: &Path, folder: &Path, port: u16) -> Command {
    let mut command = Command::new(bellwether);
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"])
        .arg(folder);
    command
}

fn apache(folder: &Path, port: u16) -> Result<Command> {
    let config = folder.join("zoo.cfg");
    let data = folder.display();
    fs::write(
        &config,
        format!(
            "tickTime=2000\ndataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        ),
    )?;
    let mut command = Command::new("java");
    command.args([
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        CLASS_PATH,
    ]);
    command
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(config);
    Ok(command)
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
            "cargo build --release && cargo bench -p bellwether-bench --bench recovery".into(),
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
    report.push_str("\nReady is the first session that is granted, from the start of the process. Each row is one start, on a fresh copy.\n");
    report
}

fn files(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.join("version-2"))? {
        let entry = entry?;
        let mib = entry.metadata()?.len() >> 20;
        files.push(format!("{} {mib} MiB", entry.file_name().to_string_lossy()));
    }
    files.sort();
    Ok(files.join(", "))
}

fn copy(folder: &Path) -> Result<TempDir> {
    let copy = tempfile::tempdir()?;
    fs::create_dir(copy.path().join("version-2"))?;
    for entry in fs::read_dir(folder.join("version-2"))? {
        let entry = entry?;
        fs::copy(
            entry.path(),
            copy.path().join("version-2").join(entry.file_name()),
        )?;
    }
    Ok(copy)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}
