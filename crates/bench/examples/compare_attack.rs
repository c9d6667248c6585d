//! Compares good clients of the embedded server and of Apache's while bad ones attack: see `compare/attack`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use bellwether_bench::comparison::{Bound, Comparison, Figure, Goal, Who};
use bellwether_bench::load::attack::{
    Attack, IdleSessions, LARGE_DIRECTORY, LARGE_DIRECTORY_CHILDREN,
};
use bellwether_bench::measure::latency::Latencies;
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_bench::wire::Wire;
use bellwether_testkit::Request;
use bellwether_testkit::certificates::{Authority, Files};
use clap::Parser;

/// Compares good clients of both servers while bad ones attack.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    server: PathBuf,
    /// Rounds for each server.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each phase: quiet, and under attack.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Clients that each hold an ephemeral node and write to it.
    #[arg(long, default_value_t = 100)]
    good: usize,
    /// Sessions that do nothing.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Clients that do harm.
    #[arg(long, default_value_t = 2000)]
    bad: usize,
    /// The file for the result.
    #[arg(long, default_value = "crates/bench/results/attack.md")]
    result: PathBuf,
}

/// The time between two writes of a good client.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut comparison = Comparison::default();
    for round in 1..=args.rounds {
        for (who, kind) in [
            (Who::Ours, Kind::Ours(args.server.clone())),
            (Who::Apache, Kind::Apache),
        ] {
            let figures = attack(&args, &kind).await;
            for figure in figures.with_context(|| format!("{who:?}, round {round}"))? {
                print!("{}", comparison.add(round, who, figure));
            }
        }
    }
    let how = format!(
        "{} rounds. {} good clients hold an ephemeral node each and write to it every 100 ms. They are measured for {} s alone, and for {} s with {} idle \
         sessions and {} attackers beside them, an equal number of seven kinds: connections that say nothing, send one byte at a time, send noise, announce a \
         frame of 2 GiB, ask for {} lists of {} names and read none, send half of the first message of a TLS handshake, or send it and do not answer. An attacker whose connection is closed comes again after half a second. \
         Clients, attackers and server share the machine; limits are the defaults except `maxClientCnxns=0`, because all come from one address. The \
         heap of Apache's server is 1000 MiB, as in Debian. It uses Netty, as it must for TLS.",
        args.rounds,
        args.good,
        args.seconds,
        args.seconds,
        args.idle,
        args.bad,
        200,
        LARGE_DIRECTORY_CHILDREN
    );
    let report = comparison.report("Good clients under attack", &how)?;
    println!("{report}");
    std::fs::write(&args.result, report)?;
    println!("kept in {}", args.result.display());
    Ok(())
}

/// The figures of one server in one round.
async fn attack(args: &Args, kind: &Kind) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let tls = Tls::new(kind)?;
    let server = ServerProcess::start(kind, folder.path(), &tls.settings)?;
    make_large_directory(&server.address)?;
    let good = GoodClients::start(&server.address, args.good)?;
    let phase = Duration::from_secs(args.seconds);
    let quiet = good.measure(phase).await?;
    let quiet_kib = server.resident_kib()?;
    let idle = IdleSessions::open(&server.address, args.idle).await?;
    let bad = Attack::start(&server.address, &tls.address, args.bad)?;
    let attacked = good.measure(phase).await?;
    let attacked_kib = server.resident_kib()?;
    let (alive, harmful) = (idle.alive(), bad.connections()?);
    drop((idle, bad));
    let lost = good.stop();
    let figure = |name, unit, value, goal| Figure {
        name,
        unit,
        value,
        goal,
    };
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let mib = |kib: u64| kib as f64 / 1024.0;
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let count = |count: usize| count as f64;
    let (quiet, attacked) = (quiet.sorted(), attacked.sorted());
    let ms = |us: f64| us / 1000.0;
    let (p99, p99_attacked) = (quiet.quantile_us(0.99), attacked.quantile_us(0.99));
    Ok(vec![
        figure(
            "write, p50, quiet",
            "ms",
            ms(quiet.quantile_us(0.5)),
            Goal::NONE,
        ),
        figure(
            "write, p50, attacked",
            "ms",
            ms(attacked.quantile_us(0.5)),
            Goal::NONE,
        ),
        figure("write, p99, quiet", "ms", ms(p99), Goal::NONE),
        figure("write, p99, attacked", "ms", ms(p99_attacked), Goal::NONE),
        figure(
            "p99 attacked, in units of p99 quiet",
            "x",
            p99_attacked / p99,
            Goal::own(Bound::AtMost(3.0)),
        ),
        figure(
            "write, longest, attacked",
            "ms",
            ms(attacked.quantile_us(1.0)),
            Goal::NONE,
        ),
        figure(
            "good clients that lost their session",
            "",
            count(lost),
            Goal::own(Bound::AtMost(0.0)),
        ),
        figure("idle sessions left", "", count(alive), Goal::NONE),
        figure("connections of attackers", "", count(harmful), Goal::NONE),
        figure("memory, quiet", "MiB", mib(quiet_kib), Goal::NONE),
        figure("memory, attacked", "MiB", mib(attacked_kib), Goal::NONE),
    ])
}

/// A port for TLS, and the files that it needs.
struct Tls {
    settings: String,
    address: String,
    _files: Files,
}

impl Tls {
    fn new(kind: &Kind) -> Result<Self> {
        let authority = Authority::new("authority");
        let files = Files::new();
        let trusted = files.put("ca.pem", &authority.pem);
        let server = authority.issue("server", &["127.0.0.1"]).store();
        let server = files.put("server.pem", &server);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let factory = match kind {
            // Its default has no TLS.
            Kind::Apache => {
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            }
            Kind::Ours(_) => "",
        };
        Ok(Self {
            settings: format!(
                "{factory}secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location={}\n\
                 ssl.trustStore.location={}\n",
                server.display(),
                trusted.display()
            ),
            address: format!("127.0.0.1:{port}"),
            _files: files,
        })
    }
}

fn make_large_directory(address: &str) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    wire.call(&Request::create(LARGE_DIRECTORY, ""))?;
    for number in 0..LARGE_DIRECTORY_CHILDREN {
        wire.call(&Request::create(
            format!("{LARGE_DIRECTORY}/{number:0100}"),
            "",
        ))?;
    }
    Ok(())
}

/// Clients that write at a slow rate, each on its own thread.
struct GoodClients {
    threads: Vec<JoinHandle<Result<()>>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    latencies: std::sync::Mutex<Latencies>,
    is_over: AtomicBool,
    lost: AtomicUsize,
}

impl GoodClients {
    fn start(address: &str, count: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for number in 0..count {
            let mut wire = Wire::connect(address)?;
            let path = format!("/good-{number}");
            wire.call(&Request::create_ephemeral(path.clone()))?;
            let shared = shared.clone();
            threads.push(thread::spawn(move || {
                let written = shared.write(&mut wire, &path);
                if written.is_err() {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                }
                written
            }));
        }
        Ok(Self { threads, shared })
    }

    /// The latencies of the writes in this time.
    async fn measure(&self, duration: Duration) -> Result<Latencies> {
        self.shared.take();
        #[expect(clippy::disallowed_methods, reason = "a phase lasts for a time")]
        tokio::time::sleep(duration).await;
        let latencies = self.shared.take();
        ensure!(latencies.count() > 0, "no write was answered");
        Ok(latencies)
    }

    /// Ends them. Returns how many had ended before, because their session or connection had.
    fn stop(self) -> usize {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if let Err(error) = thread.join().unwrap_or_else(|_| Err(anyhow!("panicked"))) {
                println!("a good client: {error:#}");
            }
        }
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn write(&self, wire: &mut Wire, path: &str) -> Result<()> {
        let request = Request::SetData {
            path: path.to_owned(),
            data: Some(b"alive".to_vec()),
            version: -1,
        };
        while !self.is_over.load(Ordering::Relaxed) {
            let begin = Instant::now();
            wire.call(&request)?;
            let took = begin.elapsed();
            self.latencies.lock().expect("no panic under it").add(took);
            thread::park_timeout(WRITE_INTERVAL.saturating_sub(took));
        }
        Ok(())
    }

    fn take(&self) -> Latencies {
        std::mem::take(&mut *self.latencies.lock().expect("no panic under it"))
    }
}
