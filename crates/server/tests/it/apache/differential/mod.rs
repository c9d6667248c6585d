//! Sends the same requests to this server and to Apache's, and compares the replies.
//!
//! Sessions, zxids, Stats, events and their order are compared; only times, session ids and the order of children may differ. Both servers
//! start at the same zxid.
//!
//! `BELLWETHER_DIFFERENTIAL_SEQUENCES` sets how many sequences each test runs, and `BELLWETHER_DIFFERENTIAL_SEED` the first seed; with a
//! seed alone, only that sequence runs.

mod differences;
mod pair;
mod plan;
mod planner;
mod side;
mod tables;

use anyhow::{Context, Result};

use pair::{Pair, Settings};
use planner::Planner;

/// Default number of sequences per test.
const SEQUENCES: u64 = 1500;

async fn compare(settings: Settings, usual_seed: u64) -> Result<()> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text: String| text.parse::<u64>())
    };
    let first = number("BELLWETHER_DIFFERENTIAL_SEED").transpose()?;
    let count = number("BELLWETHER_DIFFERENTIAL_SEQUENCES").transpose()?;
    let count = count.unwrap_or(if first.is_some() { 1 } else { SEQUENCES });
    let first = first.unwrap_or(usual_seed);
    let mut pair = Pair::start(settings).await?;
    for seed in first..first + count {
        let plan = Planner::new(seed, settings).plan();
        let difference = pair.difference(&plan).await;
        let difference = difference.with_context(|| format!("seed {seed}"))?;
        if let Some(first) = difference {
            let (plan, alone) = pair.shrink(plan).await?;
            let difference = alone.unwrap_or(format!("only after others: {first}"));
            panic!("{settings:?}, BELLWETHER_DIFFERENTIAL_SEED={seed}\n{plan}\n{difference}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn random_sequences_with_extended_types() {
    compare(Settings::EXTENDED, 0).await.unwrap();
}

#[tokio::test]
async fn random_sequences_with_quotas_enforced() {
    compare(Settings::QUOTAS, SEQUENCES).await.unwrap();
}
