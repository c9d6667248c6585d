//! Members of an ensemble that were cut off and serve only reads.

use std::time::Duration;

use bellwether::{Lock, connect};
use bellwether_testkit::Apache;
use tokio::time::interval;

use crate::support::place::soon;

/// Recipes write, so a read-only session is of no use to them.
#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_opened_on_a_read_only_member_of_an_ensemble() {
    let builder = Apache::builder()
        .tick(Duration::from_millis(50))
        .property("readonlymode.enabled", "true");
    let mut ensemble = builder.ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let alone = (leader + 1) % 3;
    ensemble.partition(&[alone]);
    let mut turns = interval(Duration::from_millis(50));
    soon(async {
        while ensemble.role(alone).await.as_deref() != Some("read-only") {
            turns.tick().await;
        }
    })
    .await;
    let [alone, leader] = [alone, leader].map(|index| ensemble.address(index).to_string());
    let refused = soon(connect(&alone).fail_fast().into_future()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains(&alone) && refused.contains("the server is read-only"),
        "{refused}"
    );
    // If the connect string has another member, the read-only one is skipped.
    let client = soon(connect(format!("{alone},{leader}")).into_future()).await;
    let client = client.unwrap();
    let guard = soon(Lock::new(&client, "/lock").acquire()).await.unwrap();
    guard.release().await.unwrap();
}
