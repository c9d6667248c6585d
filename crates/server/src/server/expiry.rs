//! Expires sessions that send no heartbeat.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::engine::Engine;
use crate::session::Sweeper;
use crate::writer::Submission;

/// Submits the expiry of overdue sessions, once per tick.
pub(super) async fn run(engine: Arc<Engine>) {
    let mut sweeper = Sweeper::new(engine.clock.now_ms(), tick_ms(&engine.config()));
    loop {
        let wait_ms = u64::try_from(sweeper.next_ms() - engine.clock.now_ms()).unwrap_or(0);
        #[expect(
            clippy::disallowed_methods,
            reason = "a real pause, until the next tick"
        )]
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        for session in sweeper.sweep(engine.clock.now_ms(), engine.sessions.all()) {
            tracing::info!(
                session = format_args!("{:#x}", session.id),
                "session expired"
            );
            engine.submit.submit(Submission::ExpireSession { session });
        }
    }
}

/// Tick length in milliseconds.
pub(super) fn tick_ms(config: &Config) -> i64 {
    i64::try_from(config.tick.as_millis()).unwrap_or(i64::MAX)
}
