//! Measures the free space of the disk while the server runs.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;

/// Time between two measurements. Others may use the space in between; the server's own writes are counted at once.
const INTERVAL: Duration = Duration::from_secs(1);

/// Measures for as long as the server runs.
pub(super) async fn run(engine: Arc<Engine>) {
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "a real pause, until the next measurement"
        )]
        tokio::time::sleep(INTERVAL).await;
        let room = engine.room.clone();
        // A disk that hangs blocks no request.
        if tokio::task::spawn_blocking(move || room.measure())
            .await
            .is_err()
        {
            tracing::error!("a measurement of the disk panicked");
        }
    }
}
