//! Reads that see all earlier writes, on any server (linearizable reads).

use bellwether_client as zk;

use crate::session::open_session::Session;
use crate::session::sabotage::Sabotage;

/// Syncs the server with the leader and then reads, in one round trip.
///
/// Writes of other clients, and an own request whose reply was lost, may have gone through another server of an ensemble, and may become
/// visible here only later. A read that decides by them has to follow a sync.
pub(crate) async fn caught_up<T, R>(
    zk: &zk::Client,
    path: &str,
    read: impl FnOnce() -> R,
) -> Result<T, zk::Error>
where
    R: Future<Output = Result<T, zk::Error>>,
{
    // Created after the sync, and so sent after it, in one packet.
    let (sync, read) = zk.batch(|zk| (zk.sync(path), read()));
    let (sync, read) = tokio::join!(sync, read);
    match sync {
        // The read may have reached the next server without the sync.
        Err(error) if !error.is_refusal() => Err(error),
        _ => read,
    }
}

/// As [`caught_up`], through a session, whose deliberate mistake may be to leave the sync out.
pub(crate) async fn caught_up_in<T, R>(
    session: &Session,
    path: &str,
    read: impl FnOnce() -> R,
) -> Result<T, zk::Error>
where
    R: Future<Output = Result<T, zk::Error>>,
{
    match session.is_sabotaged(Sabotage::SkipSync) {
        true => read().await,
        false => caught_up(session.zk(), path, read).await,
    }
}
