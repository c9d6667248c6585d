//! Reads that see earlier writes of others, and own ones whose reply was lost, on any server.

use bellwether_client as zk;

use crate::session::liveness::elections;

/// Syncs the server with the leader and then reads, in one round trip: for answers to questions, which may be outdated on arrival.
///
/// A leader takes a sync for a read, and may be some milliseconds behind the writes that its followers have answered already. So a recipe
/// must not act on what such a read shows: see [`read_linearizable`].
pub(crate) async fn read_synced<T, R>(
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
    after(sync.map(drop), read)
}

/// Reads what every write has left that was answered before, in one round trip: for decisions.
///
/// In an ensemble a write goes ahead of the read. The leader puts it behind all earlier writes, and the server of this session applies it
/// before it answers the read.
pub(crate) async fn read_linearizable<T, R>(
    zk: &zk::Client,
    path: &str,
    read: impl FnOnce() -> R,
) -> Result<T, zk::Error>
where
    R: Future<Output = Result<T, zk::Error>>,
{
    // A single server answers in the order of its writes.
    if elections(zk.last_zxid()) == 0 {
        return read_synced(zk, path, read).await;
    }
    let (written, read) = zk.batch(|zk| {
        // A multi goes through the quorum even if it contains only a check.
        let mut multi = zk.new_multi();
        multi.check("/", None);
        (multi.commit(), read())
    });
    let (written, read) = tokio::join!(written, read);
    after(written.map(drop).map_err(zk::Error::from), read)
}

/// The result of a read that is only valid behind another request.
fn after<T>(first: Result<(), zk::Error>, read: Result<T, zk::Error>) -> Result<T, zk::Error> {
    match first {
        // The read may have reached the next server alone.
        Err(error) if !error.is_refusal() => Err(error),
        // A request that is refused for its content has passed the leader too.
        _ => read,
    }
}
