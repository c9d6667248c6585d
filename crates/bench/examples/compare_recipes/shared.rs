//! Compares the read/write lock and the semaphore with those of other libraries.

use anyhow::Result;
use bellwether_bench::comparison::Bound;
use bellwether_bench::contest::Candidate::{Curator, Embedded, Kazoo, Ours, Plain};
use bellwether_bench::contest::{Args, Contest, Servers, Workload};

pub(crate) fn compare(args: &Args, servers: &Servers) -> Result<()> {
    let contest = Contest {
        name: "shared",
        title: "The read/write lock and the semaphore beside those of other libraries",
        about: "A cycle is an acquire and an acknowledged release; of a read/write lock every tenth one writes. In the plain \
                form everybody who waits watches the list of all.",
        candidates: &[Ours, Plain, Embedded, Curator, Kazoo],
        workloads: vec![
            Workload {
                row: "read/write cycles, 100 clients".to_owned(),
                recipe: "shared",
                contenders: 100,
                count: |outcome| outcome.turns,
                candidates: &[Ours, Plain, Embedded, Curator, Kazoo],
                rounds_max: usize::MAX,
                goals: vec![(Ours, Bound::AtLeast(1.5))],
            },
            permits("permit cycles, 1 client", 1),
            permits("permit cycles, 10 clients for 5 permits", 10),
        ],
    };
    let figures = contest.run(args, servers, |_| Ok(()))?;
    contest.keep(args, &contest.page(args, &figures, "")?)
}

fn permits(row: &str, contenders: usize) -> Workload {
    Workload {
        row: row.to_owned(),
        recipe: "permits",
        contenders,
        count: |outcome| outcome.turns,
        candidates: &[Ours, Embedded, Curator, Kazoo],
        rounds_max: usize::MAX,
        goals: vec![(Ours, Bound::AtLeast(2.0))],
    }
}
