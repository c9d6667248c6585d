//! Contenders in tasks of one runtime that take turns until time is up: shared code of the peers in Rust.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::peer::{PeerOutcome, Task};

/// The counter of one contender.
#[derive(Debug, Clone)]
pub struct Place {
    number: usize,
    tally: Arc<Tally>,
}

#[derive(Debug)]
struct Tally {
    turns: AtomicU64,
    hand_overs: AtomicU64,
    last: AtomicUsize,
    over: AtomicBool,
}

impl Place {
    /// The number of the contender.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Counts a turn; called during the turn.
    pub fn turn(&self) {
        let Self { number, tally } = self;
        tally.turns.fetch_add(1, Ordering::Relaxed);
        if tally.last.swap(*number, Ordering::Relaxed) != *number {
            tally.hand_overs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether this is the first of the contenders.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Whether to take no further turn.
    pub fn is_over(&self) -> bool {
        self.tally.over.load(Ordering::Relaxed)
    }
}

/// Opens the sessions of a task, lets each contender run its loop on one of them, and counts.
pub async fn run<Session, Connect, Contend>(
    task: &Task,
    connect: impl Fn() -> Connect,
    contend: impl Fn(Session, Place) -> Contend,
) -> Result<PeerOutcome>
where
    Session: Clone,
    Connect: Future<Output = Result<Session>>,
    Contend: Future<Output = Result<()>> + Send + 'static,
{
    let mut sessions = Vec::new();
    for _ in 0..task.sessions {
        sessions.push(connect().await?);
    }
    let tally = Arc::new(Tally {
        turns: AtomicU64::new(0),
        hand_overs: AtomicU64::new(0),
        last: AtomicUsize::new(usize::MAX),
        over: AtomicBool::new(false),
    });
    let mut contenders = JoinSet::new();
    for number in 0..task.contenders {
        let place = Place {
            number,
            tally: Arc::clone(&tally),
        };
        contenders.spawn(contend(sessions[number % sessions.len()].clone(), place));
    }
    // An error ends the count early; it is reported below.
    let _ = tokio::time::timeout(task.warm_up, contenders.join_next()).await;
    let before = tally.now();
    let _ = tokio::time::timeout(task.duration, contenders.join_next()).await;
    let after = tally.now();
    tally.over.store(true, Ordering::Relaxed);
    while let Some(contender) = contenders.join_next().await {
        contender??;
    }
    Ok(PeerOutcome {
        turns: after.1 - before.1,
        hand_overs: after.2 - before.2,
        all_turns: tally.now().1,
        seconds: (after.0 - before.0).as_secs_f64(),
        ..PeerOutcome::default()
    })
}

impl Tally {
    fn now(&self) -> (Instant, u64, u64) {
        (
            Instant::now(),
            self.turns.load(Ordering::Relaxed),
            self.hand_overs.load(Ordering::Relaxed),
        )
    }
}
