//! Compares the embedded server with Apache's, in turn, in one run: see `compare/server`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_bench::comparison::{Bound, Comparison, Figure, Goal, Who};
use bellwether_bench::load::population::{self, Population};
use bellwether_bench::load::{Load, LoadOutcome, Work};
use bellwether_bench::measure::awake::Awake;
use bellwether_bench::measure::floor;
use bellwether_bench::server_process::{Kind, ServerProcess};
use bellwether_bench::wire::Wire;
use bellwether_testkit::{Create, Request};
use clap::Parser;
use tempfile::TempDir;

/// Compares the embedded server with Apache's.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    server: PathBuf,
    /// Rounds for each server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each load.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measures only the cost of the audit log.
    #[arg(long)]
    audit: bool,
    /// The file for the result.
    #[arg(long, default_value = "crates/bench/results/server.md")]
    result: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let folders = match args.audit {
        true => None,
        false => Some(Folders::build().await?),
    };
    let mut comparison = Comparison::default();
    for round in 1..=args.rounds {
        for (who, kind) in [
            (Who::Ours, Kind::Ours(args.server.clone())),
            (Who::Apache, Kind::Apache),
        ] {
            let mut measured = Round {
                kind,
                duration: Duration::from_secs_f64(args.seconds),
                figures: Vec::new(),
            };
            let run = match &folders {
                Some(folders) => measured.run(folders),
                None => measured.audit_log(),
            };
            run.with_context(|| format!("{who:?}, round {round}"))?;
            for figure in measured.figures {
                print!("{}", comparison.add(round, who, figure));
            }
        }
    }
    let how = format!(
        "{} rounds of {} s a load, syncs on; medians, with the range of the rounds. `8 x 32` is 8 \
         connections with 32 requests each under way.",
        args.rounds, args.seconds
    );
    let report = comparison.report("The embedded server beside Apache ZooKeeper 3.8", &how)?;
    println!("{report}");
    std::fs::write(&args.result, report)?;
    println!("kept in {}", args.result.display());
    Ok(())
}

/// The data folders with which servers start.
struct Folders {
    thousand: TempDir,
    million_in_log: TempDir,
    million_in_snapshot: TempDir,
}

impl Folders {
    async fn build() -> Result<Self> {
        let million_in_log = Population::MILLION.build().await?;
        Ok(Self {
            thousand: Population::THOUSAND.build().await?,
            million_in_snapshot: population::with_snapshot(million_in_log.path()).await?,
            million_in_log,
        })
    }
}

/// The measurements of one server in one round.
struct Round {
    kind: Kind,
    duration: Duration,
    /// In the order of the table.
    figures: Vec<Figure>,
}

impl Round {
    fn run(&mut self, folders: &Folders) -> Result<()> {
        self.fresh_server()?;
        self.audit_log()?;
        self.many_children()?;
        self.growth(folders)?;
        self.snapshots(folders)?;
        Ok(())
    }

    fn note(&mut self, name: &'static str, unit: &'static str, value: f64, goal: Goal) {
        self.figures.push(Figure {
            name,
            unit,
            value,
            goal,
        });
    }

    /// A load with its own nodes.
    fn load(
        &self,
        server: &ServerProcess,
        work: Work,
        connections: usize,
        depth: usize,
    ) -> Result<Load> {
        Ok(Load {
            connect: server.address.parse()?,
            work,
            connections,
            depth,
            duration: self.duration,
            parent: None,
            population: None,
        })
    }

    fn outcome(
        &self,
        server: &ServerProcess,
        work: Work,
        connections: usize,
        depth: usize,
    ) -> Result<LoadOutcome> {
        self.load(server, work, connections, depth)?.run()
    }

    /// An empty server: start, latency, throughput, watches.
    fn fresh_server(&mut self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let server = &ServerProcess::start(&self.kind, folder.path(), "")?;
        let started = ms(server.started_in);
        self.note("start to first reply", "ms", started, Goal::at_most(0.05));
        let idle = mib(server.resident_kib()?);
        self.note("memory, idle", "MiB", idle, Goal::at_most(0.1));
        // Warm-up.
        self.outcome(server, Work::Get, 8, 32)?;
        self.outcome(server, Work::Set, 8, 32)?;

        let loopback = floor::loopback_us()?;
        let sync = floor::fdatasync_us(folder.path())?;
        let get = p50(&self.outcome(server, Work::Get, 1, 1)?);
        self.note("get, 1 x 1, p50", "us", get, Goal::at_most(0.5));
        let in_trips = Goal::own(Bound::AtMost(2.5));
        self.note(
            "the same, in loopback round trips",
            "x",
            get / loopback,
            in_trips,
        );
        let awake = Awake::keep()?;
        let get = p50(&self.outcome(server, Work::Get, 1, 1)?);
        let set = p50(&self.outcome(server, Work::Set, 1, 1)?);
        drop(awake);
        self.note(
            "get, 1 x 1, p50, on cores that do not sleep",
            "us",
            get,
            Goal::at_most(0.5),
        );
        self.note(
            "set, 1 x 1, p50, on cores that do not sleep",
            "us",
            set,
            Goal::at_most(0.6),
        );
        let gets = self.outcome(server, Work::Get, 8, 32)?.per_second;
        self.note("get, 8 x 32", "/s", gets, Goal::at_least(3.0));
        let set = p50(&self.outcome(server, Work::Set, 1, 1)?);
        self.note("set, 1 x 1, p50", "us", set, Goal::at_most(0.6));
        let in_floors = Goal::own(Bound::AtMost(1.5));
        self.note(
            "the same, in fdatasyncs with a round trip",
            "x",
            set / (sync + loopback),
            in_floors,
        );
        for (name, work, connections, depth, goal) in [
            ("set, 8 x 32", Work::Set, 8, 32, Goal::at_least(2.5)),
            ("create, 8 x 32", Work::Create, 8, 32, Goal::at_least(2.5)),
            (
                "create and delete, 8 x 1",
                Work::CreateDelete,
                8,
                1,
                Goal::NONE,
            ),
            (
                "sessions opened, 16 x 1",
                Work::Connect,
                16,
                1,
                Goal::at_least(3.0),
            ),
        ] {
            let outcome = self.outcome(server, work, connections, depth)?;
            self.note(name, "/s", outcome.per_second, goal);
        }
        let beside = std::thread::scope(|scope| {
            let writes = self.load(server, Work::Set, 1, 256)?;
            let writer = scope.spawn(move || writes.run());
            let reads = self.outcome(server, Work::Get, 1, 1)?;
            writer.join().expect("a load does not panic")?;
            anyhow::Ok(reads)
        })?;
        self.note(
            "get p99 beside writes",
            "us",
            p99(&beside),
            Goal::at_most(0.5),
        );
        let events = p50(&self.outcome(server, Work::FanOut, 1000, 1)?) / 1000.0;
        self.note(
            "one change to 1,000 watchers",
            "ms",
            events,
            Goal::at_most(0.4),
        );
        self.note("loopback round trip, p50", "us", loopback, Goal::NONE);
        self.note("fdatasync, p50", "us", sync, Goal::NONE);
        Ok(())
    }

    /// The same writes without and with a line in the audit log for each.
    fn audit_log(&mut self) -> Result<()> {
        let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
        let (log, setting) = match &self.kind {
            Kind::Ours(_) | Kind::Counted(_) => {
                let log = folders[1].path().join("audit.log");
                let setting = format!("bellwether.auditLog={}\n", log.display());
                (log, setting)
            }
            // Its lines go where its other lines go.
            Kind::Apache => (folders[1].path().join("log"), "audit.enable=true\n".into()),
        };
        let plain = ServerProcess::start(&self.kind, folders[0].path(), "")?;
        let audited = ServerProcess::start(&self.kind, folders[1].path(), &setting)?;
        let run = |server: &ServerProcess| self.outcome(server, Work::Set, 8, 32);
        // Warm-up.
        run(&plain)?;
        run(&audited)?;
        let (without, with) = (run(&plain)?.per_second, run(&audited)?.per_second);
        let lines = std::fs::read_to_string(&log)?;
        ensure!(
            lines.lines().filter(|line| line.contains("set")).count() > 100,
            "the audit log is empty"
        );
        self.note("set, 8 x 32, without audit log", "/s", without, Goal::NONE);
        self.note("set, 8 x 32, with audit log", "/s", with, Goal::NONE);
        let goal = Goal::own(Bound::AtLeast(0.7));
        self.note("sets left with an audit log", "x", with / without, goal);
        Ok(())
    }

    /// A parent of 100,000 children of 100 bytes: the memory of a fresh server, and the speed of creating
    /// further children.
    fn many_children(&mut self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let server = &ServerProcess::start(&self.kind, folder.path(), "")?;
        fill(&server.address, "/many", 100_000)?;
        let memory = mib(server.resident_kib()?);
        self.note("memory, 100,000 nodes", "MiB", memory, Goal::at_most(0.333));
        fill(&server.address, "/few", 10)?;
        let beside = |parent: &str| -> Result<f64> {
            let mut load = self.load(server, Work::CreateDelete, 8, 32)?;
            load.parent = Some(parent.into());
            Ok(load.run()?.per_second)
        };
        let (few, many) = (beside("/few")?, beside("/many")?);
        self.note(
            "create and delete beside 10 children",
            "/s",
            few,
            Goal::NONE,
        );
        self.note("the same beside 100,000", "/s", many, Goal::NONE);
        let within = Goal::own(Bound::AtLeast(0.5));
        self.note(
            "creates and deletes left beside 100,000 children",
            "x",
            many / few,
            within,
        );
        Ok(())
    }

    /// The same load on a thousand nodes and on a million.
    fn growth(&mut self, folders: &Folders) -> Result<()> {
        let recovery = Goal::at_most(0.5);
        let folder = population::copy(folders.million_in_log.path())?;
        let server = self.start_with(Population::MILLION, &folder, "")?;
        self.note(
            "start with 1,000,000 nodes in the log",
            "ms",
            ms(server.started_in),
            recovery,
        );
        drop(server);
        let folder = population::copy(folders.million_in_snapshot.path())?;
        let million = self.start_with(Population::MILLION, &folder, "")?;
        self.note(
            "start with 1,000,000 nodes in a snapshot",
            "ms",
            ms(million.started_in),
            recovery,
        );
        let memory = mib(million.resident_kib()?);
        self.note("memory, 1,000,000 nodes", "MiB", memory, Goal::NONE);
        let of_million = self.on(&million, Population::MILLION)?;
        drop(million);

        let folder = population::copy(folders.thousand.path())?;
        let thousand = self.start_with(Population::THOUSAND, &folder, "")?;
        let of_thousand = self.on(&thousand, Population::THOUSAND)?;
        let names = [
            [
                "get, 8 x 32, at 1,000 nodes",
                "get, 8 x 32, at 1,000,000",
                "gets left at 1,000,000 nodes",
            ],
            [
                "set, 8 x 32, at 1,000 nodes",
                "set, 8 x 32, at 1,000,000",
                "sets left at 1,000,000 nodes",
            ],
            [
                "create, 8 x 32, at 1,000 nodes",
                "create, 8 x 32, at 1,000,000",
                "creates left at 1,000,000 nodes",
            ],
        ];
        let little_lost = Goal::own(Bound::AtLeast(0.7)).and_ratio(Bound::AtLeast(1.0));
        for ((names, few), many) in names.iter().zip(of_thousand).zip(of_million) {
            self.note(names[0], "/s", few, Goal::NONE);
            self.note(names[1], "/s", many, Goal::NONE);
            self.note(names[2], "x", many / few, little_lost);
        }
        Ok(())
    }

    /// Gets, sets and creates on all nodes of a population.
    fn on(&self, server: &ServerProcess, population: Population) -> Result<[f64; 3]> {
        let run = |work| -> Result<f64> {
            let mut load = self.load(server, work, 8, 32)?;
            load.population = Some(population);
            Ok(load.run()?.per_second)
        };
        // Warm-up.
        run(Work::Get)?;
        run(Work::Set)?;
        Ok([run(Work::Get)?, run(Work::Set)?, run(Work::Create)?])
    }

    /// Writes while snapshots of a million nodes are written, one after the other.
    fn snapshots(&mut self, folders: &Folders) -> Result<()> {
        for (name, config) in [
            ("set p99, 8 x 1, 1,000,000 nodes", ""),
            ("the same while snapshots are written", "snapCount=1000\n"),
        ] {
            let folder = population::copy(folders.million_in_snapshot.path())?;
            let server = self.start_with(Population::MILLION, &folder, config)?;
            let before = population::snapshots(folder.path())?;
            // Warm-up, until the first snapshot is due.
            self.outcome(&server, Work::Set, 8, 1)?;
            let outcome = self.outcome(&server, Work::Set, 8, 1)?;
            ensure!(
                config.is_empty() || population::snapshots(folder.path())? != before,
                "no snapshot was written"
            );
            self.note(name, "us", p99(&outcome), Goal::NONE);
        }
        Ok(())
    }

    /// A server with a population.
    fn start_with(
        &self,
        population: Population,
        folder: &TempDir,
        config: &str,
    ) -> Result<ServerProcess> {
        let server = ServerProcess::start(&self.kind, folder.path(), config)?;
        Wire::connect(&server.address)?.call(&Request::get_data(population.last()))?;
        Ok(server)
    }
}

/// Creates a node and children of 100 bytes below it.
fn fill(address: &str, parent: &str, children: usize) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    wire.call(&Request::create(parent, ""))?;
    let create = Request::create_mode(
        format!("{parent}/n-"),
        vec![b'x'; 100],
        Create::PERSISTENT_SEQUENTIAL,
    )
    .encode(1);
    let mut rest = children;
    while rest > 0 {
        let together = rest.min(100);
        wire.send(&create.repeat(together))?;
        let mut answered = 0;
        while answered < together {
            answered += wire.count_replies()?;
        }
        rest -= together;
    }
    Ok(())
}

fn p50(outcome: &LoadOutcome) -> f64 {
    outcome.latencies.quantile_us(0.5)
}

fn p99(outcome: &LoadOutcome) -> f64 {
    outcome.latencies.quantile_us(0.99)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
