//! The lock beside those of other libraries, alternately, in one run: see `compare/locks`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::figures::{Figures, commit_and_machine};
use bellwether_bench::floor;
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
const EMBEDDED: &str = "ours, embedded server";
const PEERS: [&str; 3] = ["Curator", "kazoo", "zookeeper-client"];
const FLOOR: &str = "floor";

/// A goal: with so many contenders, ours is so many times as fast as the best peer on the same server.
const GOALS: [(&str, usize, f64); 7] = [
    (OURS, 1, 1.25),
    (OURS, 2, 1.3),
    (OURS, 10, 1.1),
    (OURS, 100, 1.1),
    (EMBEDDED, 1, 2.5),
    (EMBEDDED, 2, 4.0),
    (EMBEDDED, 10, 4.0),
];

/// A goal: a hand-over takes at most so many times what its floor takes.
const FLOOR_GOAL: f64 = 1.6;

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
    let apache = ServerProcess::start(&Kind::Apache, apache_folder.path())?;
    let embedded = ServerProcess::start(&Kind::Ours(args.server.clone()), embedded_folder.path())?;
    let ours = format!("{} bellwether", args.rust_peer);
    let zookeeper_client = format!("{} zookeeper-client", args.rust_peer);
    let candidate = |column, command, server: &ServerProcess| {
        anyhow::Ok(Candidate {
            column,
            peer: start(command)?,
            address: server.address.clone(),
        })
    };
    let mut candidates = [
        candidate(OURS, &ours, &apache)?,
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

fn start(command: &str) -> Result<Peer> {
    let mut words = command.split_whitespace();
    let program = words.next().context("no program")?;
    Peer::start(Command::new(program).args(words))
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
                path: format!("/{}-{contenders}-{round}", column.replace([',', ' '], "-")),
                contenders,
                sessions: contenders,
                warm_up: duration / 2,
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
    let floor = floor::hand_overs_per_second(folder.path(), duration)?;
    println!("{}", figures.add("floor", "/s", FLOOR, floor));
    let loopback_us = floor::loopback()?.quantile_us(0.5);
    println!(
        "{}",
        figures.add("loopback round trip, p50", "us", FLOOR, loopback_us)
    );
    let fdatasync_us = floor::fdatasync(folder.path())?.quantile_us(0.5);
    println!(
        "{}",
        figures.add("fdatasync, p50", "us", FLOOR, fdatasync_us)
    );
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
        "# The lock beside those of other libraries\n\n\
         `crates/bench/compare/locks --rounds {} --seconds {}`, {}, syncs on; Apache ZooKeeper 3.8 unless the embedded \
         server is named. A session for each contender, all contenders of a library in one process. A cycle is an \
         acquire and an acknowledged release; a hand-over is a turn after that of another contender. The floor is one \
         fdatasync and two round trips over the loopback, one after the other. Medians, with the range of the rounds.\n\n",
        args.rounds,
        args.seconds,
        commit_and_machine()?,
    );
    let columns = [&[OURS, EMBEDDED][..], &PEERS[..]].concat();
    writeln!(
        page,
        "| a second | {} | ours / best peer |",
        columns.join(" | ")
    )?;
    writeln!(page, "|---{}|---|", "|---".repeat(columns.len()))?;
    for &contenders in &args.contenders {
        let row = row(contenders);
        write!(page, "| {row} ")?;
        for column in &columns {
            match figures.summary(&row, column) {
                Some(summary) => write!(page, "| {summary} ")?,
                None => write!(page, "| – ")?,
            }
        }
        let times = |column| times_best_peer(figures, &row, column);
        match (times(OURS), times(EMBEDDED)) {
            (Some(ours), Some(embedded)) => {
                writeln!(page, "| {ours:.2}, embedded {embedded:.2} |")?;
            }
            _ => writeln!(page, "| – |")?,
        }
    }
    for row in ["floor", "loopback round trip, p50", "fdatasync, p50"] {
        let summary = figures
            .summary(row, FLOOR)
            .context("the floor was measured")?;
        writeln!(page, "\n{row}: {summary}")?;
    }
    writeln!(
        page,
        "\n## Goals\n\n| what | goal | reached |\n|---|---|---|"
    )?;
    for (column, contenders, goal) in GOALS {
        if let Some(times) = times_best_peer(figures, &row(contenders), column) {
            let met = met(times >= goal);
            writeln!(
                page,
                "| {column}, {}, to the best peer | at least {goal} × | {times:.2} × ({met}) |",
                row(contenders)
            )?;
        }
    }
    for &contenders in args.contenders.iter().filter(|many| **many > 1) {
        for column in [OURS, EMBEDDED] {
            let rate = |row: &str, column| figures.summary(row, column).map(|figure| figure.median);
            if let (Some(floor), Some(ours)) =
                (rate("floor", FLOOR), rate(&row(contenders), column))
            {
                let times = floor / ours;
                let met = met(times <= FLOOR_GOAL);
                writeln!(
                    page,
                    "| {column}, {}, time to the floor's | at most {FLOOR_GOAL} × | {times:.2} × ({met}) |",
                    row(contenders)
                )?;
            }
        }
    }
    writeln!(page, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(page)
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "not met" }
}

/// How many times as fast as the best of the peers one is.
fn times_best_peer(figures: &Figures, row: &str, column: &str) -> Option<f64> {
    let best = PEERS
        .iter()
        .filter_map(|peer| figures.summary(row, peer))
        .map(|figure| figure.median)
        .max_by(f64::total_cmp)?;
    Some(figures.summary(row, column)?.median / best)
}
