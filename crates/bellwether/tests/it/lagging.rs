//! Readers that are sent to a server that knows less than they have shown.

use std::time::Duration;

use bellwether::{Cache, CacheEvent, Config, Seen, connect, zk};
use bellwether_testkit::{Cut, Ensemble, FaultProxy};
use futures_util::StreamExt;

use crate::place::soon;

/// So long that the client does not give up while the server lags, so short that it tries often.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

fn number(data: &[u8]) -> u32 {
    String::from_utf8_lossy(data).parse().unwrap()
}

/// Within a session the servers see to it: one that lags does not take a client that has seen more. And a new session is
/// itself a write, before which the server has to learn all that came earlier; `sync` makes sure of it where sessions
/// are local.
#[tokio::test(flavor = "multi_thread")]
async fn t83_readers_do_not_go_back_on_a_follower_that_lags() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    assert_ne!(
        ensemble.leader().await.unwrap(),
        0,
        "the one that lags follows"
    );
    let lagging = FaultProxy::start(ensemble.address(0)).await.unwrap();
    let current = FaultProxy::start(ensemble.address(1)).await.unwrap();
    let writer = connect(ensemble.address(2).to_string()).await.unwrap();
    let writer = Config::<String>::new(&writer, "/app/value");
    writer.set(&"1".to_owned()).await.unwrap();

    lagging.refuse(true);
    let both = format!("{},{}", lagging.address(), current.address());
    let client = connect(both)
        .session_timeout(SESSION_TIMEOUT)
        .await
        .unwrap();
    let mut values = Config::<String>::new(&client, "/app/value").watch();
    let tree = soon(Cache::new(&client, "/app").open()).await.unwrap();
    let mut changes = tree.changes();
    let outside = zk::Client::connect(&ensemble.address(0).to_string())
        .await
        .unwrap();
    outside.sync("/app/value").await.unwrap();

    ensemble.hold_back(true);
    writer.set(&"2".to_owned()).await.unwrap();
    let mut shown = 0;
    let mut next = async || loop {
        match soon(values.next()).await.unwrap().unwrap() {
            Seen::Value(entry) => {
                let value = number(entry.value.as_bytes());
                assert!(value >= shown, "{value} after {shown}");
                shown = value;
                return value;
            }
            Seen::Renewed => {}
            other => panic!("{other:?}"),
        }
    };
    while next().await < 2 {}
    let mut cached = 0;
    let mut next_cached = async || loop {
        if let CacheEvent::Changed { path, node } = soon(changes.next()).await.unwrap()
            && &*path == "/app/value"
        {
            let value = number(&node.data);
            assert!(value > cached, "{value} after {cached}");
            cached = value;
            return value;
        }
    };
    assert_eq!(next_cached().await, 2);
    let (stale, _) = outside.get_data("/app/value").await.unwrap();
    assert_eq!(number(&stale), 1, "the follower lags");

    // Now there is only the one that lags, and it sends them away until it has caught up.
    lagging.refuse(false);
    current.refuse(true);
    current.cut(Cut::Reset).await;
    soon(async {
        while lagging.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ensemble.hold_back(false);
    writer.set(&"3".to_owned()).await.unwrap();
    while next().await < 3 {}
    while next_cached().await < 3 {}
    assert_eq!(current.connections_now(), 0);
}
