//! Compares the lock with those of other libraries, and with what the machine allows.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::comparison::Bound;
use bellwether_bench::contest::Candidate::{
    ByHand, ByHandEmbedded, Curator, CurrentThread, CurrentThreadEmbedded, Embedded, Kazoo,
    OnRuntime, Ours, ZookeeperClient,
};
use bellwether_bench::contest::{Args, Candidate, Contest, Servers, Workload};
use bellwether_bench::measure::figures::Figures;
use bellwether_bench::measure::floor;

const EVERYBODY: &[Candidate] = &[
    Ours,
    OnRuntime,
    CurrentThread,
    ByHand,
    Embedded,
    CurrentThreadEmbedded,
    ByHandEmbedded,
    Curator,
    Kazoo,
    ZookeeperClient,
];

/// The goals in units of the same protocol by hand, for each way to run a session.
const BY_HAND_GOALS: [(Candidate, Candidate, Bound); 5] = [
    (Ours, ByHand, Bound::AtLeast(0.85)),
    (OnRuntime, ByHand, Bound::AtLeast(0.85)),
    (CurrentThread, ByHand, Bound::AtLeast(0.95)),
    (Embedded, ByHandEmbedded, Bound::AtLeast(0.85)),
    (CurrentThreadEmbedded, ByHandEmbedded, Bound::AtLeast(0.95)),
];

/// Figures of the machine, and their units.
const FLOOR_ROWS: [(&str, &str); 3] = [
    ("floor", "/s"),
    ("loopback round trip, p50", "us"),
    ("fdatasync, p50", "us"),
];

const MACHINE: &str = "machine";

/// The goal for the time of a hand-over on the embedded server, in units of its floor's.
const FLOOR_GOAL: Bound = Bound::AtMost(1.6);

pub(crate) fn compare(args: &Args, servers: &Servers) -> Result<()> {
    let contest = Contest {
        name: "locks",
        title: "The lock beside those of other libraries",
        about: "A cycle is an acquire and an acknowledged release; a hand-over is a turn after that of another contender. \
                *By hand* is the same protocol on blocking sockets, one thread for each contender: what a client could reach at best. \
                On a current-thread runtime, sessions and contenders share one thread. \
                The floor is one fdatasync and two round trips over the loopback, one after the other.",
        candidates: EVERYBODY,
        workloads: vec![
            uncontended(),
            hand_overs(2, 1.1),
            hand_overs(10, 1.15),
            hand_overs(100, 1.1),
            Workload {
                rounds_max: 3,
                goals: Vec::new(),
                ..hand_overs(1000, 0.0)
            },
        ],
    };
    let duration = Duration::from_secs_f64(args.seconds);
    let figures = contest.run(args, servers, |figures| {
        let folder = tempfile::tempdir()?;
        let values = [
            floor::hand_overs_per_second(folder.path(), duration)?,
            floor::loopback_us()?,
            floor::fdatasync_us(folder.path())?,
        ];
        for ((row, unit), value) in FLOOR_ROWS.into_iter().zip(values) {
            println!("{}", figures.add(row, unit, MACHINE, value));
        }
        Ok(())
    })?;
    let more = beside_by_hand(&contest.workloads, &figures)?
        + &beside_the_floor(&contest.workloads, &figures)?;
    contest.keep(args, &contest.page(args, &figures, &more)?)
}

/// The share of the cycles that its protocol allows.
fn beside_by_hand(workloads: &[Workload], figures: &Figures) -> Result<String> {
    let mut text = String::from(
        "\n## In units of the same protocol by hand, on the same server\n\n| what | ratio | goal |\n|---|---|---|\n",
    );
    for Workload { row, goals, .. } in workloads {
        for (who, by_hand, goal) in BY_HAND_GOALS {
            let (column, by_hand) = (who.column(), by_hand.column());
            let ratio = figures.median(row, column)? / figures.median(row, by_hand)?;
            let verdict = match goals.is_empty() {
                true => String::new(),
                false => goal.verdict(ratio),
            };
            writeln!(text, "| {row}, {column} | {ratio:.2} | {verdict} |")?;
        }
    }
    Ok(text)
}

fn beside_the_floor(workloads: &[Workload], figures: &Figures) -> Result<String> {
    let mut text = String::from("\n## The time of a hand-over in units of the floor's\n\n");
    for (row, unit) in FLOOR_ROWS {
        let spread = figures.spread(row, MACHINE);
        let spread = spread.context("the floor is measured")?;
        writeln!(text, "- {row}: {}", spread.with_range(unit))?;
    }
    text += "\n| what | ratio | goal |\n|---|---|---|\n";
    let floor = figures.median("floor", MACHINE)?;
    for workload in workloads.iter().filter(|work| work.contenders > 1) {
        for (who, goal) in [(Ours, None), (Embedded, Some(FLOOR_GOAL))] {
            let ratio = floor / figures.median(&workload.row, who.column())?;
            let verdict = goal.map(|goal| goal.verdict(ratio)).unwrap_or_default();
            let (row, column) = (&workload.row, who.column());
            writeln!(text, "| {row}, {column} | {ratio:.2} | {verdict} |")?;
        }
    }
    Ok(text)
}

fn uncontended() -> Workload {
    Workload {
        row: "uncontended cycles".to_owned(),
        recipe: "lock",
        contenders: 1,
        count: |outcome| outcome.turns,
        candidates: EVERYBODY,
        rounds_max: usize::MAX,
        goals: vec![
            (Ours, Bound::AtLeast(1.25)),
            (Embedded, Bound::AtLeast(2.5)),
        ],
    }
}

fn hand_overs(contenders: usize, goal: f64) -> Workload {
    Workload {
        row: format!("hand-overs, {contenders} contenders"),
        recipe: "lock",
        contenders,
        count: |outcome| outcome.hand_overs,
        candidates: EVERYBODY,
        rounds_max: usize::MAX,
        goals: vec![
            (Ours, Bound::AtLeast(goal)),
            (Embedded, Bound::AtLeast(2.2)),
        ],
    }
}
