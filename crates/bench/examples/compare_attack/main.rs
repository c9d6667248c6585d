//! Compares good clients of the embedded server and of Apache's while bad ones attack: see `compare/attack`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

mod background;
mod good_clients;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bellwether_bench::comparison::{Bound, Comparison, Figure, Goal, Who};
use bellwether_bench::load::attack::{
    GREEDY_REQUESTS, Harm, LARGE_DIRECTORY, LARGE_DIRECTORY_CHILDREN,
};
use bellwether_bench::load::flood;
use bellwether_bench::measure::latency::{Latencies, Sorted};
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_bench::wire::Wire;
use bellwether_testkit::Request;
use bellwether_testkit::certificates::{Authority, Files};
use clap::{Parser, ValueEnum as _};

use crate::background::{Background, Outcome, Role};
use crate::good_clients::GoodClients;

/// Compares good clients of both servers while bad ones attack.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// The `bellwether` to compare.
    #[arg(long, default_value = "target/release/bellwether")]
    server: PathBuf,
    /// Rounds for each server.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each phase: quiet, under attack, and beside a process that only uses CPU time.
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
    /// The kinds of harm. Unless set, all kinds of attackers that are many and send little; the others are floods.
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Harm>,
    /// Measures only the embedded server, and keeps no result.
    #[arg(long)]
    only_ours: bool,
    /// The file for the result.
    #[arg(long, default_value = "crates/bench/results/attack.md")]
    result: PathBuf,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if let Some(role) = args.role {
        return role.play();
    }
    if args.kinds.is_empty() {
        args.kinds = Harm::CROWD.to_vec();
    }
    let mut servers = vec![(Who::Ours, Kind::Ours(args.server.clone()))];
    if !args.only_ours {
        servers.push((Who::Apache, Kind::Apache));
    }
    let mut comparison = Comparison::default();
    for round in 1..=args.rounds {
        for (who, kind) in &servers {
            let figures = attack(&args, kind);
            for figure in figures.with_context(|| format!("{who:?}, round {round}"))? {
                print!("{}", comparison.add(round, *who, figure));
            }
        }
    }
    if args.only_ours {
        return Ok(());
    }
    let how = format!(
        "{} rounds. {} good clients hold an ephemeral node each and write to it every 100 ms. They are measured for {} s alone, for {} s with {} idle \
         sessions and {} attackers beside them, and for {} s beside a process that only uses as much CPU time as the attackers did, without a connection. \
         The attackers are an equal number of these kinds: {}. They send nothing, one byte at a time, noise, or the announcement of a \
         frame of 2 GiB, ask for {} lists of {} names and read none, send half of the first message of a TLS handshake, or send it and do not answer. \
         An attacker whose connection is closed comes again after half a second. Clients, attackers and server share the machine. The process of the idle sessions \
         and attackers, and the one that only uses CPU time, have the lowest priority (`SCHED_IDLE`), because they would be on other machines. Limits are the \
         defaults except `maxClientCnxns=0`, because all come from one address. The \
         heap of Apache's server is 1000 MiB, as in Debian. It uses Netty, as it must for TLS.",
        args.rounds,
        args.good,
        args.seconds,
        args.seconds,
        args.idle,
        args.bad,
        args.seconds,
        names(&args.kinds).join(", "),
        GREEDY_REQUESTS,
        LARGE_DIRECTORY_CHILDREN
    );
    let report = comparison.report("Good clients under attack", &how)?;
    println!("{report}");
    std::fs::write(&args.result, report)?;
    println!("kept in {}", args.result.display());
    Ok(())
}

fn names(kinds: &[Harm]) -> Vec<String> {
    let names = kinds.iter().filter_map(|kind| kind.to_possible_value());
    names.map(|name| name.get_name().to_owned()).collect()
}

/// The setting for an audit log, if that is attacked. Only ours can write it to a file of its own.
fn audit_setting(args: &Args, kind: &Kind, folder: &Path) -> String {
    if matches!(kind, Kind::Ours(_)) && args.kinds.contains(&Harm::Audit) {
        let file = folder.join("audit.log");
        format!("bellwether.auditLog={}\n", file.display())
    } else {
        String::new()
    }
}

/// What one server did in one round.
struct Seen {
    quiet: Sorted,
    attacked: Sorted,
    floor: Sorted,
    /// Good clients that lost their session.
    lost: usize,
    outcome: Outcome,
    attackers_cores: f64,
    server_cores: f64,
    quiet_kib: u64,
    attacked_kib: u64,
    peak_kib: u64,
}

/// The figures of one server in one round.
fn attack(args: &Args, kind: &Kind) -> Result<Vec<Figure>> {
    let phase = Duration::from_secs(args.seconds);
    let folder = tempfile::tempdir()?;
    let tls = Tls::new(kind)?;
    let settings = tls.settings.clone() + &audit_setting(args, kind, folder.path());
    let server = ServerProcess::start(kind, folder.path(), &settings)?;
    make_large_directory(&server.address)?;
    flood::prepare(&server.address, &args.kinds)?;
    let good = GoodClients::start(&server.address, args.good)?;
    let quiet = good.measure(phase)?.sorted();
    let quiet_kib = server.resident_kib()?;
    let bad = Background::start(&[
        "attack",
        "--address",
        &server.address,
        "--tls-address",
        &tls.address,
        "--idle",
        &args.idle.to_string(),
        "--bad",
        &args.bad.to_string(),
        "--kinds",
        &names(&args.kinds).join(","),
    ])?;
    let before = server.cpu_time()?;
    let attacked = good.measure(phase)?.sorted();
    let server_cores = (server.cpu_time()? - before).as_secs_f64() / phase.as_secs_f64();
    let attackers_cores = bad.cores()?;
    let attacked_kib = server.resident_kib()?;
    let peak_kib = server.peak_kib()?;
    let outcome = bad.stop()?;
    let lost = good.stop();
    drop(server);
    let seen = Seen {
        quiet,
        attacked,
        floor: floor(args, kind, attackers_cores)?.sorted(),
        lost,
        outcome,
        attackers_cores,
        server_cores,
        quiet_kib,
        attacked_kib,
        peak_kib,
    };
    Ok(seen.figures())
}

/// The latencies of good clients beside a process that only uses CPU time. The server is a new one, on which the attack has left nothing.
fn floor(args: &Args, kind: &Kind, cores: f64) -> Result<Latencies> {
    let folder = tempfile::tempdir()?;
    let tls = Tls::new(kind)?;
    let server = ServerProcess::start(kind, folder.path(), &tls.settings)?;
    let good = GoodClients::start(&server.address, args.good)?;
    let burner = Background::start(&["burn", "--cores", &cores.to_string()])?;
    let latencies = good.measure(Duration::from_secs(args.seconds))?;
    burner.stop()?;
    good.stop();
    Ok(latencies)
}

impl Seen {
    fn figures(&self) -> Vec<Figure> {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let mib = |kib: u64| kib as f64 / 1024.0;
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let count = |count: usize| count as f64;
        let ms = |latencies: &Sorted, quantile| latencies.quantile_us(quantile) / 1000.0;
        let (p99, p99_attacked) = (ms(&self.quiet, 0.99), ms(&self.attacked, 0.99));
        let at_most = |limit| Goal::own(Bound::AtMost(limit));
        let none = Goal::NONE;
        let figures = [
            ("write, p50, quiet", "ms", ms(&self.quiet, 0.5), none),
            ("write, p50, attacked", "ms", ms(&self.attacked, 0.5), none),
            ("write, p99, quiet", "ms", p99, none),
            (
                "write, p99, beside CPU load alone",
                "ms",
                ms(&self.floor, 0.99),
                none,
            ),
            ("write, p99, attacked", "ms", p99_attacked, none),
            (
                "p99 attacked, in units of p99 quiet",
                "x",
                p99_attacked / p99,
                at_most(3.0),
            ),
            (
                "write, longest, attacked",
                "ms",
                ms(&self.attacked, 1.0),
                none,
            ),
            (
                "good clients that lost their session",
                "",
                count(self.lost),
                at_most(0.0),
            ),
            (
                "idle sessions left",
                "",
                count(self.outcome.idle_left),
                none,
            ),
            (
                "connections of attackers",
                "",
                count(self.outcome.connections),
                none,
            ),
            (
                "CPU of idle sessions and attackers",
                "cores",
                self.attackers_cores,
                none,
            ),
            (
                "CPU of the server, attacked",
                "cores",
                self.server_cores,
                none,
            ),
            ("memory, quiet", "MiB", mib(self.quiet_kib), none),
            ("memory, attacked", "MiB", mib(self.attacked_kib), none),
            ("memory, most", "MiB", mib(self.peak_kib), none),
        ];
        let figure = |(name, unit, value, goal)| Figure {
            name,
            unit,
            value,
            goal,
        };
        figures.map(figure).into()
    }
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
            Kind::Ours(_) | Kind::Counted(_) => "",
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
