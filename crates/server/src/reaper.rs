//! Deletes containers that nobody uses any more and nodes that have outlived their time.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::engine::Engine;
use crate::writer::Submission;

/// Looks for them at the interval that is set.
pub(crate) async fn run(engine: Arc<Engine>) {
    let interval = engine
        .config
        .container_check_interval
        .max(Duration::from_millis(1));
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "a real pause, until the next look"
        )]
        tokio::time::sleep(interval).await;
        reap(&engine);
    }
}

/// Looks once. What it finds is looked at again when its turn to be deleted comes.
pub(crate) fn reap(engine: &Engine) {
    let config = &engine.config;
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

/// How many a look may delete, so that no minute sees more than its share.
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
