//! Measures what a dashboard costs the server that it shows: see `compare/dashboard`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether::{Client, Lock, LockGuard, connect};
use bellwether_bench::measure::cpu_time;
use bellwether_bench::measure::machine::machine;
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_testkit::raw::four_letter_word;
use clap::Parser;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// Measures requests, instructions and CPU time that a dashboard adds to the work of a server.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` to measure.
    #[arg(long)]
    server: PathBuf,
    /// Locks that are held all the time, apart from the moment between two holds of a busy one.
    #[arg(long, default_value_t = 1000)]
    locks: usize,
    /// How many of them are released and acquired again, in turn.
    #[arg(long, default_value_t = 100)]
    busy: usize,
    /// Seconds of each load.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds without any load, with a page open.
    #[arg(long, default_value_t = 10)]
    idle_seconds: u64,
    /// Lock cycles per second while valgrind counts instructions, which makes the server some fifty times slower.
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    counted: Vec<u32>,
    /// Lock cycles per second without valgrind.
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    timed: Vec<u32>,
    /// The file for the result.
    #[arg(long, default_value = "crates/bench/results/dashboard.md")]
    result: PathBuf,
}

/// Programs that cycle through the busy locks.
const CLIENTS: usize = 4;

/// No step takes longer, also under valgrind.
const STEP_MAX: Duration = Duration::from_secs(120);

/// What is beside the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Dashboard,
    DashboardAndPage,
}

impl Beside {
    const ALL: [Self; 3] = [Self::Nothing, Self::Dashboard, Self::DashboardAndPage];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no dashboard",
            Self::Dashboard => "dashboard, no page open",
            Self::DashboardAndPage => "dashboard, one page open",
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut tables = String::new();
    let (mut opening, mut idle) = (0, Vec::new());
    let runs = args.counted.iter().map(|&rate| (true, rate));
    let runs: Vec<_> = runs
        .chain(args.timed.iter().map(|&rate| (false, rate)))
        .collect();
    for (is_counted, rate) in runs {
        let mut rows: Vec<Run> = Vec::new();
        for beside in Beside::ALL {
            let run = measure(&args, beside, is_counted, rate).await;
            let run =
                run.with_context(|| format!("{}, {rate} cycles per second", beside.name()))?;
            println!("{} cycles per second, {}: {run:?}", rate, beside.name());
            if beside == Beside::DashboardAndPage {
                opening = opening.max(run.opening);
            }
            if is_counted && idle.len() < Beside::ALL.len() {
                idle.push(run.idle);
            }
            rows.push(run);
        }
        write!(tables, "{}", table(is_counted, rate, &rows)?)?;
    }
    let report = report(&args, &tables, opening, &idle).await?;
    println!("{report}");
    std::fs::write(&args.result, report)?;
    println!("kept in {}", args.result.display());
    Ok(())
}

/// Work of the server in some time.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    requests: u64,
    instructions: Option<u64>,
    cpu: Duration,
}

/// One run: a server, and what is beside it.
#[derive(Debug)]
struct Run {
    beside: Beside,
    /// Requests until the page has everything.
    opening: u64,
    /// While nothing changes.
    idle: Work,
    /// During the lock cycles.
    busy: Work,
    /// CPU time of the dashboard meanwhile.
    dashboard: Duration,
    cycles: usize,
    elapsed: Duration,
}

async fn measure(args: &Args, beside: Beside, is_counted: bool, rate: u32) -> Result<Run> {
    let folder = tempfile::tempdir()?;
    let kind = match is_counted {
        true => Kind::Counted(args.server.clone()),
        false => Kind::Ours(args.server.clone()),
    };
    let settings = "4lw.commands.whitelist=srvr,mntr,cons\n";
    let mut server = ServerProcess::start(&kind, folder.path(), settings)?;
    let mut crew = Crew::new(args, &server.address).await?;
    let dashboard = match beside {
        Beside::Nothing => None,
        _ => Some(Dashboard::start(&args.server, &server.address).await?),
    };
    let before = received(&server.address).await?;
    let page = match (&dashboard, beside) {
        (Some(dashboard), Beside::DashboardAndPage) => Some(dashboard.open_page().await?),
        _ => None,
    };
    let opening = received(&server.address).await? - before;

    let mut meter = Meter::new(&mut server, is_counted).await?;
    sleep_until(Instant::now() + Duration::from_secs(args.idle_seconds)).await;
    let idle = meter.work(&mut server).await?;
    let (begin, cycles) = (
        Instant::now(),
        usize::try_from(u64::from(rate) * args.seconds)?,
    );
    let cpu_time = || {
        dashboard
            .as_ref()
            .map_or(Ok(Duration::ZERO), Dashboard::cpu_time)
    };
    let cpu_before = cpu_time()?;
    crew.cycle(cycles, rate).await?;
    let (busy, elapsed) = (meter.work(&mut server).await?, begin.elapsed());
    let cpu = cpu_time()? - cpu_before;
    if let Some(page) = &page {
        ensure!(!page.is_finished(), "the page has ended");
        page.abort();
    }
    Ok(Run {
        beside,
        opening,
        idle,
        busy,
        dashboard: cpu,
        cycles,
        elapsed,
    })
}

/// Clients, each with its share of the locks.
struct Crew {
    /// Never released during the measurement.
    held: Vec<LockGuard>,
    /// Those of each client.
    busy: Vec<VecDeque<(Lock, LockGuard)>>,
    _clients: Vec<Client>,
}

impl Crew {
    async fn new(args: &Args, address: &str) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(connect(address).await?);
        }
        let mut crew = Self {
            held: Vec::new(),
            busy: clients.iter().map(|_| VecDeque::new()).collect(),
            _clients: clients.clone(),
        };
        for number in 0..args.locks {
            let client = number % CLIENTS;
            let lock = Lock::new(&clients[client], format!("/locks/l{number:04}"));
            let guard = lock.acquire().await?;
            match number < args.busy {
                true => crew.busy[client].push_back((lock, guard)),
                false => crew.held.push(guard),
            }
        }
        Ok(crew)
    }

    /// Releases and acquires busy locks, `cycles` times in all and `rate` times per second.
    async fn cycle(&mut self, cycles: usize, rate: u32) -> Result<()> {
        let each = Duration::from_secs(CLIENTS as u64) / rate;
        let workers = self.busy.iter_mut().map(|locks| async move {
            // A late cycle is made up for: each run has the same number of them.
            let mut ticks = interval(each);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for _ in 0..cycles / CLIENTS {
                ticks.tick().await;
                let (lock, guard) = locks.pop_front().context("a client without locks")?;
                guard.release().await?;
                let guard = lock.acquire().await?;
                locks.push_back((lock, guard));
            }
            anyhow::Ok(())
        });
        futures_util::future::try_join_all(workers).await?;
        Ok(())
    }
}

/// Counters of a server, as last read.
struct Meter {
    is_counted: bool,
    received: u64,
    cpu: Duration,
}

impl Meter {
    async fn new(server: &mut ServerProcess, is_counted: bool) -> Result<Self> {
        let mut meter = Self {
            is_counted,
            received: 0,
            cpu: Duration::ZERO,
        };
        meter.work(server).await?;
        Ok(meter)
    }

    /// Work since the last call.
    async fn work(&mut self, server: &mut ServerProcess) -> Result<Work> {
        let received = received(&server.address).await?;
        let cpu = server.cpu_time()?;
        let work = Work {
            requests: received - self.received,
            instructions: match self.is_counted {
                true => Some(server.instructions()?),
                false => None,
            },
            cpu: cpu - self.cpu,
        };
        (self.received, self.cpu) = (received, cpu);
        Ok(work)
    }
}

async fn received(address: &str) -> Result<u64> {
    let text = four_letter_word(address, "srvr").await?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Received: "));
    Ok(line.context("no count of requests")?.trim().parse()?)
}

/// `bellwether dashboard`. Killed on drop.
struct Dashboard {
    process: Child,
    address: String,
}

impl Dashboard {
    async fn start(program: &Path, server: &str) -> Result<Self> {
        let mut process = Command::new(program)
            .args([
                "dashboard",
                "--open",
                "--http",
                "127.0.0.1:0",
                "--connect",
                server,
            ])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let notices = process.stderr.take().context("it is piped")?;
        let mut notices = BufReader::new(notices).lines();
        loop {
            let line = timeout(STEP_MAX, notices.next_line()).await??;
            let line = line.context("the dashboard ended")?;
            if let Some((_, address)) = line.split_once("dashboard at http://") {
                let address = address.trim_end_matches('/').to_owned();
                tokio::spawn(async move { while let Ok(Some(_)) = notices.next_line().await {} });
                return Ok(Self { process, address });
            }
        }
    }

    fn cpu_time(&self) -> Result<Duration> {
        cpu_time::of_process(self.process.id().context("the dashboard has ended")?)
    }

    /// Opens a page, and returns when it has been sent everything. It reads on until it is aborted.
    async fn open_page(&self) -> Result<JoinHandle<()>> {
        let mut page = BufReader::new(TcpStream::connect(&self.address).await?);
        let head = format!("GET /api/live HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        page.write_all(head.as_bytes()).await?;
        let mut line = String::new();
        while !line.contains(r#""ready":true"#) {
            line.clear();
            let read = timeout(STEP_MAX, page.read_line(&mut line)).await??;
            ensure!(read > 0, "the dashboard closed the page");
        }
        Ok(tokio::spawn(async move {
            let mut line = String::new();
            while page.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                line.clear();
            }
        }))
    }
}

/// A row for each run, with what it has more than the first, which has no dashboard.
fn table(is_counted: bool, rate: u32, runs: &[Run]) -> Result<String> {
    let [alone, ..] = runs else {
        return Ok(String::new());
    };
    let mut text = format!("\n## {rate} lock cycles per second");
    text += if is_counted { "" } else { ", without valgrind" };
    text += "\n\n| beside the server | lock cycles | seconds | requests | more | ";
    text += if is_counted {
        "million instructions | more |"
    } else {
        ""
    };
    text += " CPU seconds | more | of the dashboard |\n|---|---|---|---|---|---|---|---|";
    text += if is_counted { "---|---|\n" } else { "\n" };
    for run in runs {
        write!(
            text,
            "| {} | {} | {:.0} | {} | {} |",
            run.beside.name(),
            run.cycles,
            run.elapsed.as_secs_f64(),
            run.busy.requests,
            percent(run.busy.requests, alone.busy.requests),
        )?;
        if let (Some(own), Some(base)) = (run.busy.instructions, alone.busy.instructions) {
            write!(text, " {} | {} |", millions(own), percent(own, base))?;
        }
        let us = |work: &Work| u64::try_from(work.cpu.as_micros()).unwrap_or(u64::MAX);
        let more = percent(us(&run.busy), us(&alone.busy));
        let (own, dashboard) = (run.busy.cpu.as_secs_f64(), run.dashboard.as_secs_f64());
        writeln!(text, " {own:.2} | {more} | {dashboard:.2} |")?;
    }
    Ok(text)
}

async fn report(args: &Args, tables: &str, opening: u64, idle: &[Work]) -> Result<String> {
    let mut text = format!(
        "# What the dashboard costs a server\n\n{}\n\n\
         `crates/bench/compare/dashboard`: {} locks are held, and {CLIENTS} clients release and acquire {} of them in turn, at the same rate and as often in \
         each run. `bellwether dashboard` is a process of its own; its page is a client of `/api/live`, as the page in a browser. Requests are those that \
         `srvr` counts, instructions those of the server in user space (`valgrind --tool=callgrind`), CPU time that of all its threads, in the kernel too. \
         CPU time depends on what else runs on the machine. Valgrind makes the server slower, not its instructions more.\n{tables}",
        machine()?,
        args.locks,
        args.busy,
    );
    write!(
        text,
        "\n## A page on which nothing changes\n\nTo open the first page takes {opening} requests. Then, in {} s without lock cycles:\n\n\
         | beside the server | requests, with heartbeats | million instructions |\n|---|---|---|\n",
        args.idle_seconds
    )?;
    for (beside, work) in Beside::ALL.iter().zip(idle) {
        let instructions = work.instructions.map_or_else(String::new, millions);
        writeln!(
            text,
            "| {} | {} | {instructions} |",
            beside.name(),
            work.requests
        )?;
    }
    text += "\n## Idle memory of `serve`\n\n| | resident | proportional |\n|---|---|---|\n";
    let http: [(_, &[&str]); 2] = [
        ("without `--http`", &[]),
        ("with `--http`, no page open", &["--http", "127.0.0.1:0"]),
    ];
    for (name, more_args) in http {
        let folder = tempfile::tempdir()?;
        let kind = Kind::Ours(args.server.clone());
        let server = ServerProcess::start_with(&kind, folder.path(), "", more_args)?;
        sleep_until(Instant::now() + Duration::from_secs(5)).await;
        let (resident, proportional) = (server.resident_kib()?, server.proportional_kib()?);
        writeln!(text, "| {name} | {resident} KiB | {proportional} KiB |")?;
    }
    Ok(text)
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn percent(value: u64, base: u64) -> String {
    match value == base {
        true => String::new(),
        false => format!("{:+.1} %", 100.0 * (value as f64 / base as f64 - 1.0)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn millions(count: u64) -> String {
    format!("{:.1}", count as f64 / 1e6)
}
