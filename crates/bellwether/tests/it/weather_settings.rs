//! What the environment says about tests under random faults: their seed, and how long the faults go on.

use std::time::{Duration, Instant, SystemTime};

/// The seed of the first round, `BELLWETHER_HISTORIES_SEED`, or one by the clock. Prints it.
pub(crate) fn seed() -> u64 {
    let seed = setting("BELLWETHER_HISTORIES_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::from(now.unwrap().subsec_nanos())
    });
    eprintln!("seed {seed}");
    seed
}

/// How long faults go on, `BELLWETHER_HISTORIES_SECONDS`, if that is set.
pub(crate) fn duration() -> Option<Duration> {
    setting("BELLWETHER_HISTORIES_SECONDS").map(Duration::from_secs)
}

/// Runs rounds of one seed each until the time is over, one at least.
pub(crate) async fn rounds(mut run: impl AsyncFnMut(u64)) {
    let end = Instant::now() + duration().unwrap_or_default();
    let mut seed = seed();
    loop {
        run(seed).await;
        if Instant::now() >= end {
            return;
        }
        seed += 1;
        eprintln!("seed {seed}");
    }
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is no number")),
    )
}
