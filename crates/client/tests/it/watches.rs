//! Watches: what they report, and what they leave on the server.

use bellwether_client::{
    CreateMode, Error, Event, EventKind, Invalid, PersistentEvent, PersistentWatch, WatchMode,
};
use bellwether_testkit::Direction;
use futures_util::FutureExt as _;

use crate::support::place::{Place, create, soon};

on_both_engines! {
    one_shot_watches_tell_the_first_change,
    a_missing_node_is_watched_by_exists_alone,
    handles_at_one_path_share_its_watch,
    dropped_handles_leave_no_watch_on_the_server,
    a_dropped_reply_leaves_no_watch_on_the_server,
    a_persistent_watch_tells_every_change_of_its_node,
    a_recursive_watch_tells_every_change_below,
    two_modes_at_one_path_are_refused,
    one_shot_watches_do_not_disturb_a_persistent_watch,
    one_shot_watches_do_not_disturb_a_recursive_watch,
    one_shot_watches_outlive_a_persistent_watch_at_their_path,
}

fn event(kind: EventKind, path: &str) -> Event {
    Event {
        kind,
        path: path.to_owned(),
    }
}

fn node(kind: EventKind, path: &str) -> PersistentEvent {
    PersistentEvent::Node(event(kind, path))
}

/// The events that a watch has received so far.
fn told(watch: &mut PersistentWatch) -> Vec<PersistentEvent> {
    std::iter::from_fn(|| watch.next().now_or_never())
        .map(Result::unwrap)
        .collect()
}

async fn one_shot_watches_tell_the_first_change(place: Place) {
    let client = place.client().await;
    create(&client, "/n").await;
    let (_, _, data) = client.get_watched("/n").await.unwrap();
    let (_, exists) = client.exists_watched("/n").await.unwrap();
    let (_, children) = client.children_watched("/n").await.unwrap();
    let (_, _, children_stat) = client.children_stat_watched("/n").await.unwrap();
    client.set("/n", b"1", None).await.unwrap();
    create(&client, "/n/c").await;
    assert_eq!(
        soon(data).await,
        Ok(event(EventKind::NodeDataChanged, "/n"))
    );
    assert_eq!(
        soon(exists).await,
        Ok(event(EventKind::NodeDataChanged, "/n"))
    );
    assert_eq!(
        soon(children).await,
        Ok(event(EventKind::NodeChildrenChanged, "/n"))
    );
    assert_eq!(
        soon(children_stat).await,
        Ok(event(EventKind::NodeChildrenChanged, "/n"))
    );
    // All kinds of watches report the deletion of the node.
    let (_, _, data) = client.get_watched("/n/c").await.unwrap();
    let (_, children) = client.children_watched("/n/c").await.unwrap();
    client.delete("/n/c", None).await.unwrap();
    let deleted = event(EventKind::NodeDeleted, "/n/c");
    assert_eq!(soon(data).await, Ok(deleted.clone()));
    assert_eq!(soon(children).await, Ok(deleted));
    assert!(place.watched_paths().await.is_empty());
}

async fn a_missing_node_is_watched_by_exists_alone(place: Place) {
    let client = place.client().await;
    assert_eq!(client.get_watched("/n").await.unwrap_err(), Error::NO_NODE);
    assert_eq!(
        client.children_watched("/n").await.unwrap_err(),
        Error::NO_NODE
    );
    assert!(place.watched_paths().await.is_empty());
    let (stat, created) = client.exists_watched("/n").await.unwrap();
    assert_eq!(stat, None);
    assert_eq!(place.watched_paths().await, ["/n"]);
    create(&client, "/n").await;
    assert_eq!(soon(created).await, Ok(event(EventKind::NodeCreated, "/n")));
}

async fn handles_at_one_path_share_its_watch(place: Place) {
    let client = place.client().await;
    create(&client, "/n").await;
    let (_, _, first) = client.get_watched("/n").await.unwrap();
    let (_, _, second) = client.get_watched("/n").await.unwrap();
    drop(first);
    client.sync("/").await.unwrap();
    assert_eq!(place.watched_paths().await, ["/n"]);
    client.set("/n", b"", None).await.unwrap();
    soon(second).await.unwrap();
}

async fn dropped_handles_leave_no_watch_on_the_server(place: Place) {
    let client = place.client().await;
    create(&client, "/n").await;
    let (_, _, data) = client.get_watched("/n").await.unwrap();
    let (_, missing) = client.exists_watched("/missing").await.unwrap();
    let (_, children) = client.children_watched("/n").await.unwrap();
    create(&client, "/p").await;
    create(&client, "/r").await;
    let persistent = client.watch("/p", WatchMode::Persistent).await.unwrap();
    let recursive = client.watch("/r", WatchMode::Recursive).await.unwrap();
    assert_eq!(place.watched_paths().await, ["/missing", "/n", "/p", "/r"]);
    drop((data, missing, children, persistent, recursive));
    client.sync("/").await.unwrap();
    assert!(place.watched_paths().await.is_empty());
}

async fn a_dropped_reply_leaves_no_watch_on_the_server(place: Place) {
    let (proxy, client) = place.proxied(std::time::Duration::from_secs(40)).await;
    create(&client, "/n").await;
    proxy.hold(Direction::ToClient);
    drop(client.get_watched("/n"));
    drop(client.watch("/p", WatchMode::Persistent));
    let kept = client.children_watched("/n");
    let given_up = client.children_watched("/n");
    drop(given_up);
    proxy.resume(Direction::ToClient);
    let (_, kept) = soon(kept).await.unwrap();
    client.sync("/").await.unwrap();
    // The answers have arrived, and after them the removals.
    client.sync("/").await.unwrap();
    client.set("/n", b"", None).await.unwrap();
    create(&client, "/p").await;
    assert!(proxy.events() == 0, "these have no watches");
    create(&client, "/n/c").await;
    soon(kept).await.unwrap();
    assert!(place.watched_paths().await.is_empty());
}

async fn a_persistent_watch_tells_every_change_of_its_node(place: Place) {
    let client = place.client().await;
    let mut watch = client.watch("/n", WatchMode::Persistent).await.unwrap();
    create(&client, "/n").await;
    create(&client, "/n/c").await;
    create(&client, "/n/c/deep").await;
    client.set("/n", b"", None).await.unwrap();
    client.set("/n", b"", None).await.unwrap();
    client.set("/n/c", b"", None).await.unwrap();
    client.delete("/n/c/deep", None).await.unwrap();
    client.delete("/n/c", None).await.unwrap();
    client.delete("/n", None).await.unwrap();
    let expected = [
        EventKind::NodeCreated,
        EventKind::NodeChildrenChanged,
        EventKind::NodeDataChanged,
        EventKind::NodeDataChanged,
        EventKind::NodeChildrenChanged,
        EventKind::NodeDeleted,
    ];
    assert_eq!(told(&mut watch), expected.map(|kind| node(kind, "/n")));
}

async fn a_recursive_watch_tells_every_change_below(place: Place) {
    let client = place.client().await;
    create(&client, "/n").await;
    let mut watch = client.watch("/n", WatchMode::Recursive).await.unwrap();
    let mut above = client.watch("/", WatchMode::Recursive).await.unwrap();
    create(&client, "/n/c").await;
    create(&client, "/nn").await;
    client.set("/n/c", b"", None).await.unwrap();
    client.delete("/n/c", None).await.unwrap();
    client.delete("/n", None).await.unwrap();
    let expected = [
        node(EventKind::NodeCreated, "/n/c"),
        node(EventKind::NodeDataChanged, "/n/c"),
        node(EventKind::NodeDeleted, "/n/c"),
        node(EventKind::NodeDeleted, "/n"),
    ];
    assert_eq!(told(&mut watch), expected);
    let mut all = expected.to_vec();
    all.insert(1, node(EventKind::NodeCreated, "/nn"));
    assert_eq!(told(&mut above), all);
}

async fn two_modes_at_one_path_are_refused(place: Place) {
    let client = place.client().await;
    let first = client.watch("/n", WatchMode::Persistent).await.unwrap();
    let second = client.watch("/n", WatchMode::Recursive).await.unwrap_err();
    assert_eq!(second, Error::Invalid(Invalid::WatchMode));
    let same = client.watch("/n", WatchMode::Persistent).await.unwrap();
    drop((first, same));
    client.watch("/n", WatchMode::Recursive).await.unwrap();
}

/// Apache's servers before 3.9 make a persistent watch a one-shot watch if one is armed at the same path.
async fn one_shot_watches_do_not_disturb_a_persistent_watch(place: Place) {
    let (client, other) = (place.client().await, place.client().await);
    create(&client, "/n").await;
    let mut watch = client.watch("/n", WatchMode::Persistent).await.unwrap();
    for round in 0..5 {
        let (_, _, data) = client.get_watched("/n").await.unwrap();
        let (_, children) = client.children_watched("/n").await.unwrap();
        let dropped = client.get_watched("/n").await.unwrap();
        drop(dropped);
        // In one packet, so that nothing can be armed again in between.
        let changes = other.batch(|other| {
            let one = other.set("/n", b"", None);
            let two = other.set("/n", b"", None);
            let child = other.create("/n/c-", b"", CreateMode::PersistentSequential);
            let more = other.create("/n/c-", b"", CreateMode::PersistentSequential);
            (one, two, child, more)
        });
        changes.0.await.unwrap();
        changes.1.await.unwrap();
        changes.2.await.unwrap();
        changes.3.await.unwrap();
        client.sync("/").await.unwrap();
        assert_eq!(soon(data).await.unwrap().kind, EventKind::NodeDataChanged);
        assert_eq!(
            soon(children).await.unwrap().kind,
            EventKind::NodeChildrenChanged
        );
        let expected = [
            EventKind::NodeDataChanged,
            EventKind::NodeDataChanged,
            EventKind::NodeChildrenChanged,
            EventKind::NodeChildrenChanged,
        ];
        let expected = expected.map(|kind| node(kind, "/n"));
        assert_eq!(told(&mut watch), expected, "round {round}");
    }
    drop(watch);
    client.sync("/").await.unwrap();
    assert!(place.watched_paths().await.is_empty());
}

async fn one_shot_watches_do_not_disturb_a_recursive_watch(place: Place) {
    let (client, other) = (place.client().await, place.client().await);
    create(&client, "/n").await;
    let mut watch = client.watch("/n", WatchMode::Recursive).await.unwrap();
    for round in 0..5 {
        let (_, _, data) = client.get_watched("/n").await.unwrap();
        let (_, children) = client.children_watched("/n").await.unwrap();
        let path = format!("/n/{round}");
        create(&other, &path).await;
        other.delete(&path, None).await.unwrap();
        other.set("/n", b"", None).await.unwrap();
        create(&other, &path).await;
        client.sync("/").await.unwrap();
        assert_eq!(soon(data).await.unwrap().kind, EventKind::NodeDataChanged);
        assert_eq!(
            soon(children).await.unwrap().kind,
            EventKind::NodeChildrenChanged
        );
        let expected = [
            node(EventKind::NodeCreated, &path),
            node(EventKind::NodeDeleted, &path),
            node(EventKind::NodeDataChanged, "/n"),
            node(EventKind::NodeCreated, &path),
        ];
        assert_eq!(told(&mut watch), expected, "round {round}");
    }
}

async fn one_shot_watches_outlive_a_persistent_watch_at_their_path(place: Place) {
    let (client, other) = (place.client().await, place.client().await);
    create(&client, "/n").await;
    for mode in [WatchMode::Persistent, WatchMode::Recursive] {
        let watch = client.watch("/n", mode).await.unwrap();
        let (_, _, data) = client.get_watched("/n").await.unwrap();
        let (_, children) = client.children_watched("/n").await.unwrap();
        drop(watch);
        let (_, again) = client.exists_watched("/n").await.unwrap();
        other.set("/n", b"", None).await.unwrap();
        let child = other.create("/n/c-", b"", CreateMode::PersistentSequential);
        child.await.unwrap();
        assert_eq!(soon(data).await.unwrap().kind, EventKind::NodeDataChanged);
        assert_eq!(soon(again).await.unwrap().kind, EventKind::NodeDataChanged);
        assert_eq!(
            soon(children).await.unwrap().kind,
            EventKind::NodeChildrenChanged
        );
        client.sync("/").await.unwrap();
        assert!(place.watched_paths().await.is_empty(), "{mode:?}");
    }
}
