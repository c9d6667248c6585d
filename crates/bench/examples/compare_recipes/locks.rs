//! The lock beside those of other libraries, alternately, in one run: see `compare/locks`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::comparison::Bound;
use bellwether_bench::figures::Figures;
use bellwether_bench::floor;
use bellwether_bench::machine::machine;
use bellwether_bench::peer::{Peer, Task};
use bellwether_bench::server_process::{Kind, ServerProcess};
use clap::Parser;

/// Compares the lock with those of other libraries.
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
    /// How many contend.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10,100,1000")]
    contenders: Vec<usize>,
    /// A short trial, whose result is not kept.
    #[arg(long)]
    quick: bool,
    /// Where the result is kept.
    #[arg(long, default_value = "crates/bench/results")]
    results: PathBuf,
}

const OURS: &str = "ours";
const OURS_ON_RUNTIME: &str = "ours, on the user's runtime";
const EMBEDDED: &str = "ours, embedded server";
const PEERS: [&str; 3] = ["Curator", "kazoo", "zookeeper-client"];
const FLOOR: &str = "machine";

/// What is measured of the machine, and in what unit.
const FLOOR_ROWS: [(&str, &str); 3] = [
    ("floor", "/s"),
    ("loopback round trip, p50", "us"),
    ("fdatasync, p50", "us"),
];

/// The goals, with so many contenders, in units of the best peer's figure.
const GOALS: [(&str, usize, Bound); 8] = [
    (OURS, 1, Bound::AtLeast(1.25)),
    (OURS, 2, Bound::AtLeast(1.3)),
    (OURS, 10, Bound::AtLeast(1.1)),
    (OURS, 100, Bound::AtLeast(1.1)),
    (EMBEDDED, 1, Bound::AtLeast(2.5)),
    (EMBEDDED, 2, Bound::AtLeast(4.0)),
    (EMBEDDED, 10, Bound::AtLeast(4.0)),
    (EMBEDDED, 100, Bound::AtLeast(4.0)),
];

/// The goal for the time of a hand-over, in units of its floor's.
const FLOOR_GOAL: Bound = Bound::AtMost(1.6);

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
        args.contenders.retain(|contenders| *contenders <= 100);
    }
    let apache_folder = tempfile::tempdir()?;
    let embedded_folder = tempfile::tempdir()?;
    let apache = ServerProcess::start(&Kind::Apache, apache_folder.path(), "")?;
    let embedded =
        ServerProcess::start(&Kind::Ours(args.server.clone()), embedded_folder.path(), "")?;
    let ours = format!("{} bellwether", args.rust_peer);
    let on_runtime = format!("{} bellwether-on-runtime", args.rust_peer);
    let zookeeper_client = format!("{} zookeeper-client", args.rust_peer);
    let candidate = |column, command, server: &ServerProcess| {
        anyhow::Ok(Candidate {
            column,
            peer: Peer::of_command(command)?,
            address: server.address.clone(),
        })
    };
    let mut candidates = [
        candidate(OURS, &ours, &apache)?,
        candidate(OURS_ON_RUNTIME, &on_runtime, &apache)?,
        candidate(EMBEDDED, &ours, &embedded)?,
        candidate(PEERS[0], &args.curator_peer, &apache)?,
        candidate(PEERS[1], &args.kazoo_peer, &apache)?,
        candidate(PEERS[2], &zookeeper_client, &apache)?,
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
        let file = args.results.join("locks.md");
        std::fs::create_dir_all(&args.results)?;
        std::fs::write(&file, page)?;
        println!("kept in {}", file.display());
    }
    Ok(())
}

/// One round: every candidate with every number of contenders, and the floor.
fn measure(
    args: &Args,
    round: usize,
    candidates: &mut [Candidate],
    figures: &mut Figures,
) -> Result<()> {
    let duration = Duration::from_secs_f64(args.seconds);
    for &contenders in &args.contenders {
        for Candidate {
            column,
            peer,
            address,
        } in &mut *candidates
        {
            let task = Task {
                recipe: "lock".to_owned(),
                address: address.clone(),
                path: format!(
                    "/{}-{contenders}-{round}",
                    column.replace([',', '\'', ' '], "-")
                ),
                contenders,
                sessions: contenders,
                warm_up: duration / 2 + QUEUE_UP * u32::try_from(contenders)?,
                duration,
            };
            let outcome = peer
                .run(&task)
                .with_context(|| format!("{column}, round {round}: {task}"))?;
            let count = if contenders == 1 {
                outcome.turns
            } else {
                outcome.hand_overs
            };
            #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
            let per_second = count as f64 / outcome.seconds;
            println!(
                "{}",
                figures.add(&row(contenders), "/s", column, per_second)
            );
        }
    }
    let folder = tempfile::tempdir()?;
    let values = [
        floor::hand_overs_per_second(folder.path(), duration)?,
        floor::loopback_us()?,
        floor::fdatasync_us(folder.path())?,
    ];
    for ((row, unit), value) in FLOOR_ROWS.into_iter().zip(values) {
        println!("{}", figures.add(row, unit, FLOOR, value));
    }
    Ok(())
}

fn row(contenders: usize) -> String {
    match contenders {
        1 => "uncontended cycles".to_owned(),
        many => format!("hand-overs, {many} contenders"),
    }
}

fn page(args: &Args, figures: &Figures) -> Result<String> {
    let mut page = format!(
        "# The lock beside those of other libraries\n\n{}\n\n\
         `crates/bench/compare/locks --rounds {} --seconds {}`, syncs on; medians, with the range of the rounds. \
         Apache ZooKeeper 3.8 unless the embedded server is named; a session for each contender, all contenders of a \
         library in one process. A cycle is an acquire and an acknowledged release; a hand-over is a turn after that of \
         another contender. The floor is one fdatasync and two round trips over the loopback, one after the other.\n\n",
        machine()?,
        args.rounds,
        args.seconds,
    );
    let columns = [&[OURS, OURS_ON_RUNTIME, EMBEDDED][..], &PEERS[..]].concat();
    writeln!(page, "| what | {} |", columns.join(" | "))?;
    writeln!(page, "|---{}|", "|---".repeat(columns.len()))?;
    for &contenders in &args.contenders {
        let row = row(contenders);
        write!(page, "| {row} ")?;
        for column in &columns {
            let spread = figures
                .spread(&row, column)
                .context("everybody is measured")?;
            write!(page, "| {} ", spread.with_range("/s"))?;
        }
        writeln!(page, "|")?;
    }
    writeln!(page)?;
    for (row, unit) in FLOOR_ROWS {
        let spread = figures
            .spread(row, FLOOR)
            .context("the floor is measured")?;
        writeln!(page, "- {row}: {}", spread.with_range(unit))?;
    }
    writeln!(
        page,
        "\n## Ratios\n\n| what | to the best peer | goal | time to the floor's | goal |\n|---|---|---|---|---|"
    )?;
    for &contenders in &args.contenders {
        for column in [OURS, OURS_ON_RUNTIME, EMBEDDED] {
            let goal = GOALS
                .iter()
                .find(|goal| (goal.0, goal.1) == (column, contenders));
            let to_peer = figures.to_best(&row(contenders), column, &PEERS)?;
            write!(
                page,
                "| {column}, {} | {to_peer:.2} | {} ",
                row(contenders),
                goal.map(|goal| goal.2.verdict(to_peer)).unwrap_or_default()
            )?;
            if contenders == 1 {
                writeln!(page, "| | |")?;
                continue;
            }
            let to_floor =
                figures.median("floor", FLOOR)? / figures.median(&row(contenders), column)?;
            writeln!(page, "| {to_floor:.2} | {} |", FLOOR_GOAL.verdict(to_floor))?;
        }
    }
    writeln!(page, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(page)
}
