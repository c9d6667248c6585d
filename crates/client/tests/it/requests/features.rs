//! Features of servers are detected, not assumed.

use std::time::Duration;

use bellwether_client::{Client, CreateMode, Error, Feature, MultiError, WatchMode};
use bellwether_testkit::{Apache, Op};

use crate::support::place::{Place, create, soon, until_connections};

on_both_engines! {
    features_of_a_server_are_found_without_a_trace,
    an_operation_that_is_missing_is_sent_once,
    create_answers_with_the_stat_on_servers_without_create2,
    lost_look_at_a_new_node_is_repeated,
    reads_are_sent_one_by_one_on_servers_without_multi_read,
    multi_with_an_unknown_operation_is_unimplemented,
    unknown_operation_behind_writes_is_learned,
    dropped_watch_is_removed_only_where_that_is_known,
    all_watches_at_a_path_are_removed_on_request,
}

const ALL: [(Feature, Op); 6] = [
    (Feature::Create2, Op::Create2),
    (Feature::Containers, Op::CreateContainer),
    (Feature::Ttl, Op::CreateTtl),
    (Feature::PersistentWatches, Op::AddWatch),
    (Feature::MultiRead, Op::MultiRead),
    (Feature::RemoveWatches, Op::RemoveWatches),
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
        // The server closes the connection of a client that sends an unknown operation.
        connections += 1;
        until_connections(&client, connections).await;
        assert_eq!(client.supports(feature).await, Ok(false));
    }
    let unimplemented = Err(Error::UNIMPLEMENTED);
    let created = client.create("/n", b"", CreateMode::Container).await;
    assert_eq!(created.map(drop), unimplemented);
    let watched = client.watch("/n", WatchMode::Persistent).await;
    assert_eq!(watched.map(drop), unimplemented);
    soon(client.exists("/")).await.unwrap();
    assert_eq!(client.connections(), connections);
}

async fn create_answers_with_the_stat_on_servers_without_create2(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    proxy.hide(Op::Create2);
    for (data, connections) in [(b"first", 2), (b"other", 2)] {
        let created = client.create("/n-", data, CreateMode::EphemeralSequential);
        let created = soon(created).await.unwrap();
        let (read, stat) = client.get(&created.path).await.unwrap();
        assert_eq!((&read[..], stat), (&data[..], created.stat));
        assert_eq!(stat.ephemeral_owner, client.session_id());
        assert_eq!(client.connections(), connections);
    }
    assert_eq!((proxy.count(Op::Create2), proxy.count(Op::Create)), (1, 2));
    create(&client, "/same").await;
    let again = client.create("/same", b"", CreateMode::Persistent).await;
    assert_eq!(again.map(drop), Err(Error::NODE_EXISTS));
}

/// The look at the new node is repeated; the create is not.
async fn lost_look_at_a_new_node_is_repeated(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    proxy.hide(Op::Create2);
    assert_eq!(client.supports(Feature::Create2).await, Ok(false));
    let lost = proxy.swallow_reply(Op::Exists);
    let created = client.create("/n", b"", CreateMode::Persistent);
    let created = soon(created).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(client.exists("/n").await, Ok(Some(created.stat)));
    assert_eq!(proxy.count(Op::Create), 1);
}

async fn reads_are_sent_one_by_one_on_servers_without_multi_read(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    create(&client, "/n").await;
    create(&client, "/n/child").await;
    let read = async |client: &Client| {
        let mut reads = client.new_multi_read();
        reads.get("/n");
        reads.get("/missing");
        reads.children("/n");
        soon(reads.commit()).await.unwrap()
    };
    let together = read(&client).await;
    assert_eq!(together.len(), 3);
    proxy.hide(Op::MultiRead);
    // It learns that from the first request.
    let other = place.connect_through(&proxy).await.unwrap();
    for _ in 0..2 {
        assert_eq!(read(&other).await, together);
        assert_eq!(other.connections(), 2);
    }
    assert_eq!(proxy.count(Op::MultiRead), 2);
    let nothing = other.new_multi_read().commit().await;
    assert_eq!(nothing, Ok(Vec::new()));
}

/// Such a server cannot parse the list, and the connection stays.
async fn multi_with_an_unknown_operation_is_unimplemented(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    proxy.hide(Op::CreateContainer);
    let mut multi = client.new_multi();
    multi.create("/kept", b"", CreateMode::Persistent);
    multi.create("/box", b"", CreateMode::Container);
    let committed = soon(multi.commit()).await;
    assert_eq!(committed, Err(MultiError::Request(Error::UNIMPLEMENTED)));
    assert_eq!(client.exists("/kept").await, Ok(None));
    proxy.hide(Op::Create2);
    let mut multi = client.new_multi();
    multi.create("/kept", b"", CreateMode::Persistent);
    soon(multi.commit()).await.unwrap();
    assert_eq!(client.connections(), 1);
}

/// An unknown operation is refused ahead of earlier requests, which are lost with the connection.
async fn unknown_operation_behind_writes_is_learned(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    proxy.hide(Op::MultiRead);
    let (written, read) = client.batch(|client| {
        let written = client.create("/n", b"", CreateMode::Persistent);
        let mut reads = client.new_multi_read();
        reads.get("/");
        (written, reads.commit())
    });
    let written = soon(written).await;
    assert!(
        matches!(written, Ok(_) | Err(Error::Unknown)),
        "{written:?}"
    );
    assert_eq!(soon(read).await.unwrap().len(), 1);
    assert_eq!(client.supports(Feature::MultiRead).await, Ok(false));
    assert_eq!(proxy.count(Op::MultiRead), 1);
}

/// Watches of dropped handles stay on such a server, and nobody hears of them.
async fn dropped_watch_is_removed_only_where_that_is_known(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    create(&client, "/n").await;
    proxy.hide(Op::RemoveWatches);
    for _ in 0..3 {
        let (_, _, watch) = soon(client.get_watched("/n")).await.unwrap();
        drop(watch);
        // Behind the removal, if one was sent.
        let _ = soon(client.exists("/n")).await;
        until_connections(&client, 2).await;
    }
    assert_eq!(proxy.count(Op::RemoveWatches), 1);
    let (_, _, watch) = soon(client.get_watched("/n")).await.unwrap();
    client.set("/n", b"1", None).await.unwrap();
    soon(watch).await.unwrap();
    assert_eq!(client.connections(), 2);
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
        // Armed after the removal, so it stays.
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
