//! Compares the election and the double barrier with those of other libraries.

use anyhow::Result;
use bellwether_bench::comparison::Bound;
use bellwether_bench::contest::Candidate::{Curator, Embedded, Kazoo, OnRuntime, Ours};
use bellwether_bench::contest::{Args, Candidate, Contest, Servers, Workload};

const EVERYBODY: &[Candidate] = &[Ours, OnRuntime, Embedded, Curator, Kazoo];

pub(crate) fn compare(args: &Args, servers: &Servers) -> Result<()> {
    let contest = Contest {
        name: "together",
        title: "Elections and double barriers beside those of other libraries",
        about: "A take-over is a term of office after that of another candidate, who resigned and waits for the \
                acknowledgement; Curator's is `LeaderLatch`, kazoo's `Election`. A round of a double barrier is that all enter \
                and all leave. Ours is one barrier used again and again; Curator's and kazoo's alternate between two, since at \
                one a quick member meets the slow ones of the round before.",
        candidates: EVERYBODY,
        workloads: vec![
            take_overs(2),
            take_overs(10),
            double_barrier(10),
            double_barrier(50),
        ],
    };
    let figures = contest.run(args, servers, |_| Ok(()))?;
    contest.keep(args, &contest.page(args, &figures, "")?)
}

fn take_overs(candidates: usize) -> Workload {
    Workload {
        row: format!("take-overs, {candidates} candidates"),
        recipe: "election",
        contenders: candidates,
        count: |outcome| outcome.hand_overs,
        candidates: EVERYBODY,
        rounds_max: usize::MAX,
        goals: vec![(Ours, Bound::AtLeast(1.3))],
    }
}

fn double_barrier(members: usize) -> Workload {
    Workload {
        row: format!("double-barrier rounds, {members} members"),
        recipe: "double-barrier",
        contenders: members,
        count: |outcome| outcome.turns,
        candidates: EVERYBODY,
        rounds_max: usize::MAX,
        goals: vec![(Ours, Bound::AtLeast(1.5))],
    }
}
