//! Reads that see all that was written before, whichever server they come to.

use bellwether_client as zk;

use crate::error::{Outcome, outcome};

/// Reads when the server has caught up with the others, in one round trip.
///
/// What others have written, and a request of our own whose reply was lost, may have gone through another server of an ensemble, and
/// may take effect here only later. What is decided by whether it did is read behind a sync.
pub(crate) async fn caught_up<T, R>(
    zk: &zk::Client,
    path: &str,
    read: impl FnOnce() -> R,
) -> Result<T, zk::Error>
where
    R: Future<Output = Result<T, zk::Error>>,
{
    // Made behind it, and so sent behind it, in one write.
    let (sync, read) = zk.batch(|zk| (zk.sync(path), read()));
    let (sync, read) = tokio::join!(sync, read);
    match sync {
        // The read may have gone to the next server alone.
        Err(error) if outcome(&error) != Outcome::Refused => Err(error),
        _ => read,
    }
}
