//! Deletes empty containers and nodes whose time to live (TTL) has passed.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::engine::Engine;
use crate::writer::Submission;

/// Runs [`reap`] at the configured interval.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        let interval = engine.config().container_check_interval;
        let interval = interval.max(Duration::from_millis(1));
        #[expect(
            clippy::disallowed_methods,
            reason = "a real pause, until the next look"
        )]
        tokio::time::sleep(interval).await;
        reap(&engine);
    }
}

/// Submits deletes for all candidates found now. The writer checks each candidate again before it deletes it.
pub(crate) fn reap(engine: &Engine) {
    let config = engine.config();
    let never_used_ms = i64::try_from(config.container_never_used_max.as_millis()).unwrap_or(0);
    let per_look = most_per_look(
        config.container_deletions_per_minute_max,
        config.container_check_interval,
    );
    let outlived = engine
        .published
        .tree()
        .outlived(clock::wall_ms(), never_used_ms);
    for path in outlived.into_iter().take(per_look) {
        engine.submit.submit(Submission::DeleteContainer {
            path,
            never_used_ms,
        });
    }
}

/// Returns how many deletes one run may submit, so that the limit per minute is not exceeded.
fn most_per_look(per_minute: usize, interval: Duration) -> usize {
    let looks_per_minute = 60_000 / interval.as_millis().clamp(1, 60_000);
    per_minute.div_ceil(usize::try_from(looks_per_minute).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_sees_more_than_its_share() {
        assert_eq!(most_per_look(10_000, Duration::from_secs(60)), 10_000);
        assert_eq!(most_per_look(10_000, Duration::from_secs(600)), 10_000);
        assert_eq!(most_per_look(600, Duration::from_secs(1)), 10);
        assert_eq!(most_per_look(1, Duration::from_millis(1)), 1);
    }
}
