//! Compares the model with a real ensemble: whatever clients of three real members see, the model could have shown them.
//!
//! Clients of a real ensemble [record](record) what they send and receive while members lag, die and return. The log of a server has all
//! writes in their order. A [schedule](schedule) of the model's own choices, how long each message takes, is derived from them; then the
//! model [runs](replay) by this schedule, and each of its frames must be the recorded one.

mod compare;
mod forged;
mod history;
mod order;
mod record;
mod replay;
mod schedule;
mod step;

use std::time::Duration;

const MEMBERS: usize = 3;
const TICK: Duration = Duration::from_millis(200);
const SYNC_LIMIT: u64 = 25;
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Tries until a run has no election but the planned one: on a busy machine, members lose contact.
const TRIES_MAX: u64 = 3;

fn number(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_allows_what_a_real_ensemble_shows() {
    let first = number("BELLWETHER_ENSEMBLE_SEED", 1);
    for seed in first..first + number("BELLWETHER_ENSEMBLE_RUNS", 1) {
        let mut tries = 0;
        let history = loop {
            tries += 1;
            match record::record(seed).await {
                Ok(history) => break history,
                Err(why) if tries < TRIES_MAX => println!("seed {seed} again: {why:#}"),
                Err(why) => panic!("seed {seed}: {why:#}"),
            }
        };
        let frames: usize = history
            .connections
            .iter()
            .map(|one| one.received.len())
            .sum();
        println!(
            "seed {seed}: {} connections, {} writes, {frames} frames",
            history.connections.len(),
            history.txns.len()
        );
        if let Err(why) = replay::allows(&history) {
            panic!("seed {seed}: {why}");
        }
    }
}
