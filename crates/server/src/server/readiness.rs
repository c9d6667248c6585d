//! Whether a server carries out writes now.

use crate::engine::Engine;
use crate::metrics::disk;

/// Why a server carries out no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum NotReady {
    /// It stops, or has failed.
    #[error("the server is stopping")]
    Stopping,
    /// The disk of the log has less room than two of the longest requests take. The server stops when it cannot write.
    #[error("the disk of the log is full: {free_bytes} bytes are left")]
    DiskFull { free_bytes: u64 },
}

/// Waits until the write pipeline answers. The caller sets a time limit.
pub(super) async fn look(engine: &Engine) -> Result<(), NotReady> {
    if engine.connections.is_closed() {
        return Err(NotReady::Stopping);
    }
    let config = engine.config();
    let logs = config.data_log_dir.as_ref().or(config.data_dir.as_ref());
    if let Some((size, used)) = logs.and_then(|logs| disk(logs)) {
        let free_bytes = size.saturating_sub(used);
        if free_bytes < 2 * config.frame_bytes_max as u64 {
            return Err(NotReady::DiskFull { free_bytes });
        }
    }
    match engine.published.pulse.felt(&engine.submit).await {
        true => Ok(()),
        false => Err(NotReady::Stopping),
    }
}
