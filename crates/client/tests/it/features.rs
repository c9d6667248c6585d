//! What servers can do is asked, not assumed.

use std::time::Duration;

use bellwether_client::{CreateMode, Error, Feature, WatchMode};
use bellwether_testkit::{Apache, Op};

use crate::place::{Place, soon, until_connections};

on_both_engines! {
    features_of_a_server_are_found_without_a_trace,
    an_operation_that_is_missing_is_sent_once,
    all_watches_at_a_path_are_removed_on_request,
}

const ALL: [(Feature, Op); 5] = [
    (Feature::Create2, Op::Create2),
    (Feature::Containers, Op::CreateContainer),
    (Feature::Ttl, Op::CreateTtl),
    (Feature::PersistentWatches, Op::AddWatch),
    (Feature::MultiRead, Op::MultiRead),
];

async fn features_of_a_server_are_found_without_a_trace(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    let nodes = client.at_root().children("/zookeeper").await.unwrap();
    for (feature, op) in ALL {
        assert_eq!(client.supports(feature).await, Ok(true), "{feature:?}");
        assert_eq!(client.supports(feature).await, Ok(true), "{feature:?}");
        assert_eq!(proxy.count(op), 1, "{feature:?}");
    }
    assert_eq!(
        client.at_root().children("/zookeeper").await.unwrap(),
        nodes
    );
    assert_eq!(client.connections(), 1);
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    assert_eq!(proxy.events(), 0);
}

async fn an_operation_that_is_missing_is_sent_once(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    let mut connections = 1;
    for (feature, op) in ALL {
        proxy.hide(op);
        assert_eq!(
            soon(client.supports(feature)).await,
            Ok(false),
            "{feature:?}"
        );
        // The server ends the connection of a client that sends what it does not know.
        connections += 1;
        until_connections(&client, connections).await;
        assert_eq!(client.supports(feature).await, Ok(false));
    }
    let unimplemented = Err(Error::UNIMPLEMENTED);
    let created = client.create("/n", b"", CreateMode::Persistent).await;
    assert_eq!(created.map(drop), unimplemented);
    let watched = client.watch("/n", WatchMode::Persistent).await;
    assert_eq!(watched.map(drop), unimplemented);
    assert_eq!(
        client.new_multi_read().commit().await.map(drop),
        unimplemented
    );
    soon(client.exists("/")).await.unwrap();
    assert_eq!(client.connections(), connections);
}

#[tokio::test]
async fn a_time_to_live_that_is_switched_off_is_seen() {
    let server = Apache::start().await.unwrap();
    let connect = bellwether_client::Client::connect(server.connect_string());
    let client = connect.await.unwrap();
    assert_eq!(client.supports(Feature::Ttl).await, Ok(false));
    assert_eq!(client.supports(Feature::Containers).await, Ok(true));
    assert_eq!(client.connections(), 1);
}

async fn all_watches_at_a_path_are_removed_on_request(place: Place) {
    let client = place.client().await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    assert_eq!(client.check_watches("/n").await, Ok(false));
    assert_eq!(client.remove_watches("/n").await, Err(Error::NO_WATCHER));
    let (_, _, data) = client.get_watched("/n").await.unwrap();
    let (_, children) = client.children_watched("/n").await.unwrap();
    let mut persistent = client.watch("/n", WatchMode::Persistent).await.unwrap();
    assert_eq!(client.check_watches("/n").await, Ok(true));
    let (removed, again) = client.batch(|client| {
        // Armed behind the removal, so it stays.
        (client.remove_watches("/n"), client.exists_watched("/n"))
    });
    assert_eq!(removed.await, Ok(()));
    assert_eq!(soon(data).await, Err(Error::NO_WATCHER));
    assert_eq!(soon(children).await, Err(Error::NO_WATCHER));
    assert_eq!(soon(persistent.next()).await, Err(Error::NO_WATCHER));
    let (_, again) = again.await.unwrap();
    assert_eq!(place.watched_paths().await, ["/n"]);
    client.set("/n", b"", None).await.unwrap();
    soon(again).await.unwrap();
    assert!(place.watched_paths().await.is_empty());
}
