//! Reads that are no older than their call.

use bellwether::zk;

/// Waits for an answer of a quorum: what this session reads afterwards is no older than that. Returns whether there was an answer, which also
/// proves that the session was alive when the request was sent.
pub(crate) async fn catch_up(raw: &zk::Client) -> bool {
    let mut check = raw.new_multi();
    check.check("/", None);
    check.commit().await.is_ok()
}
