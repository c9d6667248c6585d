//! Cost of configuration and caches: requests, counted between client and server.

use bellwether::cache::CacheEvent;
use bellwether::state::{Entries, Seen};
use bellwether::{Cache, Config, ConfigFolder};
use bellwether_testkit::{Direction, FaultProxy};
use bellwether_wire::op::Op;
use futures_util::StreamExt;

use crate::line::counts::{expected, requests, until_sent};
use crate::support::place::{Place, note_requests, soon};

on_both_engines! {
    verbs_of_a_value_are_one_request_each,
    change_of_a_watched_value_is_one_event_and_one_read,
    folder_is_read_in_two_round_trips_and_updated_in_one_more,
    cache_is_loaded_level_by_level_with_many_nodes_in_a_request,
    change_in_a_cache_is_one_read_and_a_deletion_none,
    cache_with_a_watch_on_each_node_reads_what_has_changed,
}

/// Requests since the last call.
fn sent(proxy: &FaultProxy) -> std::collections::BTreeMap<String, usize> {
    let sent = requests(proxy);
    proxy.reset_counts();
    sent
}

async fn verbs_of_a_value_are_one_request_each(place: Place) {
    let (proxy, client) = place.counted().await;
    let config = Config::<String>::new(&client, "/app/name");
    let value = "value".to_owned();
    config.set(&value).await.unwrap();
    sent(&proxy);
    let multi = || expected([(Op::Multi, 1)]);
    config.set(&value).await.unwrap();
    assert_eq!(sent(&proxy), multi());
    let entry = config.get().await.unwrap().unwrap();
    assert_eq!(sent(&proxy), expected([(Op::GetData, 1)]));
    let set = config.compare_and_set(entry.version, &value).await.unwrap();
    assert!(set.is_some());
    assert_eq!(sent(&proxy), multi());
    let set = config.compare_and_set(entry.version, &value).await.unwrap();
    assert!(set.is_none(), "it has changed");
    assert_eq!(sent(&proxy), multi());
    assert!(config.delete().await.unwrap());
    assert_eq!(sent(&proxy), multi());
    assert!(config.create(&value).await.unwrap());
    assert_eq!(sent(&proxy), multi());
}

async fn change_of_a_watched_value_is_one_event_and_one_read(place: Place) {
    let writer = Config::<String>::new(&place.client().await, "/app/name");
    writer.set(&"first".to_owned()).await.unwrap();
    let (proxy, client) = place.counted().await;
    proxy.reset_counts();
    let mut values = Config::<String>::new(&client, "/app/name").watch();
    for value in ["second", "third", "fourth"] {
        assert!(matches!(
            soon(values.next()).await,
            Some(Ok(Seen::Value(_)))
        ));
        assert_eq!(sent(&proxy), expected([(Op::GetData, 1)]));
        writer.set(&value.to_owned()).await.unwrap();
    }
}

async fn folder_is_read_in_two_round_trips_and_updated_in_one_more(place: Place) {
    let (proxy, client) = place.counted().await;
    let folder = ConfigFolder::new(&client, "/app/database");
    let fill = |value: &'static str| {
        move |all: &mut Entries| {
            for name in ["host", "port", "user"] {
                all.insert(name.to_owned(), value.into());
            }
        }
    };
    folder.update(fill("first")).await.unwrap();
    proxy.reset_counts();
    // Half of the requests are sent before any reply.
    proxy.hold(Direction::ToClient);
    let reading = tokio::spawn({
        let folder = folder.clone();
        async move { folder.get().await }
    });
    until_sent(&proxy, 2).await;
    assert_eq!(
        requests(&proxy),
        expected([(Op::Exists, 1), (Op::GetChildren, 1)])
    );
    proxy.resume(Direction::ToClient);
    soon(reading).await.unwrap().unwrap();
    let read = [(Op::Exists, 2), (Op::GetChildren, 1), (Op::GetData, 3)];
    assert_eq!(sent(&proxy), expected(read));
    folder.update(fill("second")).await.unwrap();
    let mut updated = expected(read);
    updated.extend(expected([(Op::Multi, 1)]));
    assert_eq!(sent(&proxy), updated);
}

async fn cache_is_loaded_level_by_level_with_many_nodes_in_a_request(place: Place) {
    /// Number of nodes read in one request.
    const TOGETHER: usize = 128;

    let folder = ConfigFolder::new(&place.client().await, "/tree/folder");
    folder
        .update(|all| {
            for number in 0..2 * TOGETHER {
                all.insert(number.to_string(), Vec::new());
            }
        })
        .await
        .unwrap();
    let (proxy, client) = place.counted().await;
    proxy.reset_counts();
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    assert!(tree.snapshot().len() > 2 * TOGETHER);
    assert_eq!(
        sent(&proxy),
        expected([
            (Op::AddWatch, 1),
            (Op::Sync, 1),
            // The top; the folder and the receipt beside it; the values and the node `ready`.
            (Op::MultiRead, 1 + 1 + 3),
        ])
    );
}

async fn change_in_a_cache_is_one_read_and_a_deletion_none(place: Place) {
    let config = Config::<String>::new(&place.client().await, "/tree");
    config.set(&"first".to_owned()).await.unwrap();
    let (proxy, client) = place.counted().await;
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut changes = tree.changes();
    proxy.reset_counts();
    config.set(&"second".to_owned()).await.unwrap();
    let change = soon(changes.next()).await.unwrap();
    assert!(matches!(change, CacheEvent::Changed { .. }), "{change:?}");
    assert_eq!(
        (proxy.events(), sent(&proxy)),
        (1, expected([(Op::MultiRead, 1)]))
    );
    config.delete().await.unwrap();
    let change = soon(changes.next()).await.unwrap();
    assert!(matches!(change, CacheEvent::Deleted { .. }), "{change:?}");
    assert_eq!((proxy.events(), sent(&proxy)), (1, expected([])));
}

async fn cache_with_a_watch_on_each_node_reads_what_has_changed(place: Place) {
    let place = place.before_persistent_watches().await;
    let zk = place.outside();
    let config = Config::<String>::new(&place.client().await, "/tree");
    config.set(&"first".to_owned()).await.unwrap();
    let options = bellwether::zk::CreateOptions::from(bellwether::zk::CreateMode::Persistent);
    zk.create("/tree/a", b"", &options).await.unwrap();
    let (proxy, client) = place.counted().await;
    proxy.reset_counts();
    let looks = note_requests(&proxy, |path| path == "/zookeeper/config");
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut changes = tree.changes();
    // The server has closed the connection, and the next one is asked whether it leads to an ensemble.
    let has_looked = || !looks.lock().unwrap().is_empty();
    soon(async {
        while !has_looked() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut loaded = sent(&proxy);
    // The first one may have been lost with the connection.
    loaded.remove("Sync");
    assert_eq!(
        loaded,
        expected([
            (Op::AddWatch, 1),
            (Op::GetData, 2 + 1),
            (Op::GetChildren, 2)
        ])
    );
    let mut changed = async || match soon(changes.next()).await.unwrap() {
        CacheEvent::Changed { path, .. } => path,
        other => panic!("{other:?}"),
    };
    zk.set("/tree/a", b"2", None).await.unwrap();
    assert_eq!(&*changed().await, "/tree/a");
    assert_eq!(sent(&proxy), expected([(Op::GetData, 1)]));
    // The names below the top, then everything that is new.
    zk.create("/tree/b", b"", &options).await.unwrap();
    assert_eq!(&*changed().await, "/tree/b");
    assert_eq!(
        sent(&proxy),
        expected([(Op::GetChildren, 2), (Op::GetData, 1)])
    );
}
