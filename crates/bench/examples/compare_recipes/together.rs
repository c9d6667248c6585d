//! The election and the double barrier beside those of other libraries, alternately, in one run: see `compare/together`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::comparison::Bound;
use bellwether_bench::figures::Figures;
use bellwether_bench::machine::machine;
use bellwether_bench::peer::{Outcome, Peer, Task};
use bellwether_bench::server_process::{Kind, ServerProcess};
use clap::Parser;

/// Compares the election and the double barrier with those of other libraries.
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
const ON_RUNTIME: &str = "ours, on the user's runtime";
const EMBEDDED: &str = "ours, embedded server";
const PEERS: [&str; 2] = ["Curator", "kazoo"];

/// How long a contender may take to queue up: counting begins when all of them stand in line.
const QUEUE_UP: Duration = Duration::from_millis(20);

/// What is measured: the recipe as the peers know it, how many take part, what is counted, and the goal in units of the best
/// peer's figure.
struct Workload {
    recipe: &'static str,
    contenders: usize,
    count: fn(&Outcome) -> u64,
    goal: Bound,
}

const WORKLOADS: [Workload; 4] = [
    Workload::election(2),
    Workload::election(10),
    Workload::double_barrier(10),
    Workload::double_barrier(50),
];

impl Workload {
    const fn election(contenders: usize) -> Self {
        Self {
            recipe: "election",
            contenders,
            count: |outcome| outcome.hand_overs,
            goal: Bound::AtLeast(1.3),
        }
    }

    const fn double_barrier(contenders: usize) -> Self {
        Self {
            recipe: "double-barrier",
            contenders,
            count: |outcome| outcome.turns,
            goal: Bound::AtLeast(1.5),
        }
    }

    fn row(&self) -> String {
        match self.recipe {
            "election" => format!("take-overs, {} candidates", self.contenders),
            _ => format!("double-barrier rounds, {} members", self.contenders),
        }
    }
}

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
    let apache = ServerProcess::start(&Kind::Apache, folders[0].path(), "")?;
    let embedded = ServerProcess::start(&Kind::Ours(args.server.clone()), folders[1].path(), "")?;
    let ours = format!("{} bellwether", args.rust_peer);
    let on_runtime = format!("{} bellwether-on-runtime", args.rust_peer);
    let candidate = |column, command, server: &ServerProcess| {
        anyhow::Ok(Candidate {
            column,
            peer: Peer::of_command(command)?,
            address: server.address.clone(),
        })
    };
    let mut candidates = [
        candidate(OURS, &ours, &apache)?,
        candidate(ON_RUNTIME, &on_runtime, &apache)?,
        candidate(EMBEDDED, &ours, &embedded)?,
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
        let file = args.results.join("together.md");
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
    let duration = Duration::from_secs_f64(args.seconds);
    for workload in &WORKLOADS {
        let contenders = workload.contenders;
        for (index, candidate) in candidates.iter_mut().enumerate() {
            let task = Task {
                recipe: workload.recipe.to_owned(),
                address: candidate.address.clone(),
                path: format!("/{}-{contenders}-{index}-{round}", workload.recipe),
                contenders,
                sessions: contenders,
                warm_up: duration / 2 + QUEUE_UP * u32::try_from(contenders)?,
                duration,
            };
            let column = candidate.column;
            let outcome = candidate
                .peer
                .run(&task)
                .with_context(|| format!("{column}, round {round}: {task}"))?;
            #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
            let per_second = (workload.count)(&outcome) as f64 / outcome.seconds;
            println!("{}", figures.add(&workload.row(), "/s", column, per_second));
        }
    }
    Ok(())
}

fn page(args: &Args, figures: &Figures) -> Result<String> {
    let mut page = format!(
        "# Elections and double barriers beside those of other libraries\n\n{}\n\n\
         `crates/bench/compare/together --rounds {} --seconds {}`, syncs on; medians, with the range of the rounds. \
         Apache ZooKeeper 3.8 unless the embedded server is named; a session for each who takes part, all of a library in one \
         process. A take-over is a term of office after that of another candidate, who resigned and waits for the acknowledgement; \
         Curator's is `LeaderLatch`, kazoo's `Election`. A round of a double barrier is that all enter and all leave. Ours is one \
         barrier used again and again; Curator's and kazoo's alternate between two, since at one a quick member meets the slow \
         ones of the round before.\n\n",
        machine()?,
        args.rounds,
        args.seconds,
    );
    let columns = [&[OURS, ON_RUNTIME, EMBEDDED][..], &PEERS[..]].concat();
    writeln!(page, "| what | {} |", columns.join(" | "))?;
    writeln!(page, "|---{}|", "|---".repeat(columns.len()))?;
    for workload in &WORKLOADS {
        let row = workload.row();
        write!(page, "| {row} ")?;
        for column in &columns {
            let spread = figures.spread(&row, column);
            let spread = spread.context("everybody is measured")?;
            write!(page, "| {} ", spread.with_range("/s"))?;
        }
        writeln!(page, "|")?;
    }
    writeln!(
        page,
        "\n## Ratios to the best peer\n\n| what | ours | goal | {ON_RUNTIME} | {EMBEDDED} |\n|---|---|---|---|---|"
    )?;
    for workload in &WORKLOADS {
        let row = workload.row();
        let ratio = |column| figures.to_best(&row, column, &PEERS);
        let (ours, on_runtime, embedded) = (ratio(OURS)?, ratio(ON_RUNTIME)?, ratio(EMBEDDED)?);
        writeln!(
            page,
            "| {row} | {ours:.2} | {} | {on_runtime:.2} | {embedded:.2} |",
            workload.goal.verdict(ours),
        )?;
    }
    writeln!(page, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(page)
}
