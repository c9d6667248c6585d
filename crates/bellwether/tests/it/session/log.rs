//! Log lines of the library.

use std::time::Duration;

use bellwether::Lock;
use bellwether_testkit::{BlockedLog, Op};

use crate::support::place::{Place, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_that_blocks_does_not_stop_the_heartbeat() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(Duration::from_millis(600)).await;
    let kept = Lock::new(&client, "/kept").acquire().await.unwrap();
    let ended = Lock::new(&client, "/ended").acquire().await.unwrap();
    let log = BlockedLog::install("bellwether", ended.node()).unwrap();

    let node = format!("/ended/{}", ended.node());
    place.outside().delete(&node, None).await.unwrap();
    soon(log.blocks()).await;
    proxy.reset_counts();
    // Six per timeout.
    soon(async {
        while proxy.count(Op::Ping) < 12 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(kept.is_held());
    assert!(!ended.is_held());
    assert_eq!(place.children("/kept").await, [kept.node()]);
    drop(log);
    kept.release().await.unwrap();
}
