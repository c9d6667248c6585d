//! A barrier that is set and lifted, and a double barrier at which workers meet.

use std::time::Duration;

use bellwether::barrier::BarrierGuard;
use bellwether::{Barrier, Client, DoubleBarrier};
use bellwether_testkit::history::gates::Passage;
use bellwether_testkit::history::rounds::RoundStep;
use rand::Rng as _;
use tokio::time::timeout;

use super::Worker;
use crate::record::Did;

/// Number of members of a round: one less than there are workers, so that one worker is always left out.
pub(crate) fn round_size(workers: usize) -> usize {
    workers.saturating_sub(1).max(2)
}

/// Worker 0 sets and lifts the barrier, the others wait.
pub(super) async fn run_gate(mut worker: Worker, client: &Client) {
    let barrier = Barrier::new(client, &worker.path);
    while !worker.is_stopped() {
        let result = match worker.who {
            0 => keep_gate(&mut worker, &barrier).await,
            _ => {
                worker.note(Did::Pass(Passage::Waiting));
                let passed = worker.unless_stopped(barrier.wait()).await;
                worker.note(Did::Pass(match passed {
                    Some(Ok(())) => Passage::Passed,
                    _ => Passage::Failed,
                }));
                passed.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = result {
            worker.failed(&error).await;
        }
        worker.pause().await;
    }
    if worker.who == 0 {
        // Workers that still wait are stopped at the end of the run.
        worker.note(Did::Pass(Passage::Opening));
        drop(barrier.lift().await);
    }
}

async fn keep_gate(worker: &mut Worker, barrier: &Barrier) -> Result<(), bellwether::Error> {
    barrier.set().await?;
    worker.note(Did::Pass(Passage::Shut));
    worker.pause().await;
    worker.note(Did::Pass(Passage::Opening));
    barrier.lift().await.map(drop)
}

/// Enters and leaves, round after round.
pub(super) async fn run_meetings(mut worker: Worker, client: &Client) {
    let barrier = DoubleBarrier::new(client, &worker.path, round_size(worker.workers));
    while !worker.is_stopped() {
        worker.note(Did::Meet(RoundStep::Arrived));
        let limit = match worker.random.random_ratio(1, 8) {
            true => worker.moment(),
            false => Duration::from_secs(3600),
        };
        let entered = worker.unless_stopped(timeout(limit, barrier.enter())).await;
        match entered {
            Some(Ok(Ok(inside))) => stay(&mut worker, inside).await,
            Some(Ok(Err(error))) => {
                worker.note(Did::Meet(RoundStep::Ending));
                worker.failed(&error).await;
            }
            Some(Err(_)) | None => worker.note(Did::Meet(RoundStep::Ending)),
        }
    }
}

/// Stays for a while, and leaves in one of several ways.
async fn stay(worker: &mut Worker, inside: BarrierGuard) {
    worker.note(Did::Meet(RoundStep::Entered {
        round: inside.round(),
    }));
    let time = worker.moment();
    let _ = timeout(time, inside.lost()).await;
    worker.note(Did::Meet(RoundStep::Ending));
    if worker.random.random_ratio(1, 10) {
        return drop(inside);
    }
    if let Some(Ok(())) = worker.unless_stopped(inside.leave()).await {
        worker.note(Did::Meet(RoundStep::Left));
    }
}
