//! The read/write lock and the semaphore beside those of other libraries, alternately, in one run: see `compare/shared`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::comparison::Bound;
use bellwether_bench::figures::Figures;
use bellwether_bench::machine::machine;
use bellwether_bench::peer::{Peer, Task};
use bellwether_bench::server_process::{Kind, ServerProcess};
use clap::Parser;

/// Compares the read/write lock and the semaphore with those of other libraries.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    server: PathBuf,
    /// The example `rust_peer`.
    #[arg(long)]
    rust_peer: String,
    /// How Curator's peer is started.
    #[arg(long)]
    curator_peer: String,
    /// How kazoo's peer is started.
    #[arg(long)]
    kazoo_peer: String,
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For how long turns are counted each time.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A short trial, whose result is not kept.
    #[arg(long)]
    quick: bool,
    /// Where the result is kept.
    #[arg(long, default_value = "crates/bench/results")]
    results: PathBuf,
}

const OURS: &str = "ours";
const PLAIN: &str = "plain form";
const EMBEDDED: &str = "ours, embedded server";
const PEERS: [&str; 2] = ["Curator", "kazoo"];

/// A workload, and how many times as fast as the best peer ours should be.
struct Workload {
    row: &'static str,
    recipe: &'static str,
    contenders: usize,
    goal: Bound,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        row: "read/write cycles, 100 clients",
        recipe: "shared",
        contenders: 100,
        goal: Bound::AtLeast(1.5),
    },
    Workload {
        row: "permit cycles, 1 client",
        recipe: "permits",
        contenders: 1,
        goal: Bound::AtLeast(2.0),
    },
    Workload {
        row: "permit cycles, 10 clients for 5 permits",
        recipe: "permits",
        contenders: 10,
        goal: Bound::AtLeast(2.0),
    },
];

/// How long a contender may take to queue up: counting begins when all of them stand in line.
const QUEUE_UP: Duration = Duration::from_millis(5);

/// A candidate: its column, the library in its process, and the server that it is measured on.
struct Candidate {
    column: &'static str,
    peer: Peer,
    address: String,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.quick {
        args.rounds = 1;
        args.seconds = 0.5;
    }
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    let config = "4lw.commands.whitelist=mntr\n";
    let apache = ServerProcess::start(&Kind::Apache, folders[0].path(), config)?;
    let ours = Kind::Ours(args.server.clone());
    let embedded = ServerProcess::start(&ours, folders[1].path(), config)?;
    let candidate = |column, command: &str, server: &ServerProcess| {
        let mut words = command.split_whitespace();
        let program = words.next().context("no program")?;
        anyhow::Ok(Candidate {
            column,
            peer: Peer::start(Command::new(program).args(words))?,
            address: server.address.clone(),
        })
    };
    let rust = |library| format!("{} {library}", args.rust_peer);
    let mut candidates = [
        candidate(OURS, &rust("bellwether"), &apache)?,
        candidate(PLAIN, &rust("plain"), &apache)?,
        candidate(EMBEDDED, &rust("bellwether"), &embedded)?,
        candidate(PEERS[0], &args.curator_peer, &apache)?,
        candidate(PEERS[1], &args.kazoo_peer, &apache)?,
    ];
    let mut figures = Figures::default();
    // Nobody is measured cold: the first round is thrown away.
    measure(&args, 0, &mut candidates, &mut Figures::default())?;
    for round in 1..=args.rounds {
        measure(&args, round, &mut candidates, &mut figures)?;
    }
    let page = page(&args, &figures)?;
    println!("\n{page}");
    if !args.quick {
        let file = args.results.join("shared.md");
        std::fs::create_dir_all(&args.results)?;
        std::fs::write(&file, page)?;
        println!("kept in {}", file.display());
    }
    Ok(())
}

/// One round: every candidate with every workload.
fn measure(
    args: &Args,
    round: usize,
    candidates: &mut [Candidate],
    figures: &mut Figures,
) -> Result<()> {
    for workload in &WORKLOADS {
        let &Workload {
            row,
            recipe,
            contenders,
            ..
        } = workload;
        for candidate in &mut *candidates {
            let Candidate {
                column,
                peer,
                address,
            } = candidate;
            if *column == PLAIN && recipe != "shared" {
                continue;
            }
            let task = Task {
                recipe: recipe.to_owned(),
                address: address.clone(),
                path: format!(
                    "/{}-{recipe}-{contenders}-{round}",
                    column.replace([',', ' '], "-")
                ),
                contenders,
                sessions: contenders,
                warm_up: QUEUE_UP * u32::try_from(contenders)? + Duration::from_millis(200),
                duration: Duration::from_secs_f64(args.seconds),
            };
            let before = Packets::of(address)?;
            let outcome = peer
                .run(&task)
                .with_context(|| format!("{column}, round {round}: {task}"))?;
            let after = Packets::of(address)?;
            #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
            let (turns, all_turns) = (outcome.turns as f64, outcome.all_turns as f64);
            let per_second = turns / outcome.seconds;
            println!("{}", figures.add(row, "/s", column, per_second));
            let (requests, events) = after.since(&before);
            figures.add(&requests_row(row), "", column, requests / all_turns);
            // The embedded server does not count events among what it has sent.
            if *column != EMBEDDED {
                figures.add(&events_row(row), "", column, events / all_turns);
            }
        }
    }
    Ok(())
}

fn requests_row(row: &str) -> String {
    format!("requests a turn: {row}")
}

fn events_row(row: &str) -> String {
    format!("events a turn: {row}")
}

/// What a server has received and sent since its start.
struct Packets {
    received: f64,
    sent: f64,
}

impl Packets {
    fn of(address: &str) -> Result<Self> {
        let mut server = TcpStream::connect(address)?;
        server.write_all(b"mntr")?;
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        let value = |key: &str| {
            let mut lines = answer.lines().map(str::split_whitespace);
            let value = lines.find_map(|mut words| {
                (words.next() == Some(key)).then(|| words.next().and_then(|n| n.parse().ok()))
            });
            value
                .flatten()
                .with_context(|| format!("no {key} in {answer:?}"))
        };
        Ok(Self {
            received: value("zk_packets_received")?,
            sent: value("zk_packets_sent")?,
        })
    }

    /// Requests and events in between. Every request has one answer, and whatever else was sent is an event.
    fn since(&self, before: &Self) -> (f64, f64) {
        let requests = self.received - before.received;
        (requests, self.sent - before.sent - requests)
    }
}

fn page(args: &Args, figures: &Figures) -> Result<String> {
    let mut page = format!(
        "# The read/write lock and the semaphore beside those of other libraries\n\n{}\n\n\
         `crates/bench/compare/shared --rounds {} --seconds {}`, syncs on; medians, with the range of the rounds. \
         Apache ZooKeeper 3.8 unless the embedded server is named; a session for each contender, all contenders of a \
         library in one process. A cycle is an acquire and an acknowledged release; of a read/write lock every tenth one \
         writes. In the plain form everybody who waits watches the list of all. Requests and events are those that the \
         server counted, sessions and pings included.\n\n",
        machine()?,
        args.rounds,
        args.seconds,
    );
    let columns = [&[OURS, PLAIN, EMBEDDED][..], &PEERS[..]].concat();
    writeln!(page, "| what | {} |", columns.join(" | "))?;
    writeln!(page, "|---{}|", "|---".repeat(columns.len()))?;
    let row = |page: &mut String, name: &str, unit: &str| -> Result<()> {
        write!(page, "| {name} ")?;
        for column in &columns {
            match figures.spread(name, column) {
                Some(spread) => write!(page, "| {} ", spread.with_range(unit))?,
                None => write!(page, "| ")?,
            }
        }
        Ok(writeln!(page, "|")?)
    };
    for workload in &WORKLOADS {
        row(&mut page, workload.row, "/s")?;
        row(&mut page, &requests_row(workload.row), "")?;
        row(&mut page, &events_row(workload.row), "")?;
    }
    writeln!(
        page,
        "\n## Ratios\n\n| what | to the best peer | goal |\n|---|---|---|"
    )?;
    for Workload { row, goal, .. } in &WORKLOADS {
        for column in [OURS, EMBEDDED] {
            let ratio = figures.to_best(row, column, &PEERS)?;
            let verdict = match goal.holds(ratio) {
                true => format!("{}: met", goal.text()),
                false => format!("{}: **missed**", goal.text()),
            };
            let verdict = if column == OURS { verdict.as_str() } else { "" };
            writeln!(page, "| {column}, {row} | {ratio:.2} | {verdict} |")?;
        }
    }
    writeln!(page, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(page)
}
