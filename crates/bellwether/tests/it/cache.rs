//! A live copy equals its original, and never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bellwether::cache::{CacheEvent, LiveTree, Snapshot};
use bellwether::state::Seen;
use bellwether::{Cache, ClientState, Config, ErrorKind, Group, zk};
use bellwether_testkit::{Cut, Direction};
use bellwether_wire::op::Op;
use futures_util::StreamExt;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc;

use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon};
use crate::support::storm;

/// Generates tests on both engines from each function, and from the first ones also on servers without persistent watches.
macro_rules! with_and_without_persistent_watches {
    ($($name:ident,)*; $($other:ident,)*) => {
        on_both_engines! { $($name,)* $($other,)* }

        mod with_a_watch_on_each_node {
            $(async fn $name(place: crate::support::place::Place) {
                super::$name(place.before_persistent_watches().await).await;
            })*

            on_both_engines! { $($name,)* }
        }
    };
}

with_and_without_persistent_watches! {
    copy_is_loaded_and_kept,
    copy_of_nothing_fills_when_something_is_made,
    t79_copy_is_fresh_after_a_reconnect,
    t79_copy_is_fresh_after_a_lost_session,
    slow_listener_is_told_that_it_missed_something,
    copy_equals_the_tree_after_random_changes_and_cuts,
    dropped_copy_leaves_no_watch,
    copy_and_watch_say_when_they_are_stale,;
    t83_copy_catches_up_before_it_reads_after_a_reconnect,
    node_that_was_told_to_be_gone_does_not_come_back,
    more_than_can_be_watched_one_by_one_is_refused,
    copy_that_grows_too_large_to_be_watched_ends,
}

type Contents = BTreeMap<String, Vec<u8>>;

fn contents(snapshot: &Snapshot) -> Contents {
    let nodes = snapshot.iter();
    nodes
        .map(|(path, node)| (path.to_string(), node.data.clone()))
        .collect()
}

async fn make(zk: &zk::Client, path: &str, data: &[u8]) {
    let options = zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    zk.create(path, data, &options).await.unwrap();
}

async fn make_root(place: &Place) {
    let root = Config::new(&place.client().await, "/tree");
    root.set(&Vec::new()).await.unwrap();
}

/// Creates many nodes.
async fn fill(zk: &zk::Client, paths: impl Iterator<Item = String>) {
    let options = zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    let paths: Vec<_> = paths.collect();
    for some in paths.chunks(500) {
        let mut writer = zk.new_multi();
        for path in some {
            writer.create(path, b"", &options);
        }
        writer.commit().await.unwrap();
    }
}

/// The current state, read node by node.
async fn truth(zk: &zk::Client) -> Contents {
    let mut found = Contents::new();
    let mut paths = vec!["/tree".to_owned()];
    while let Some(path) = paths.pop() {
        if let Ok((data, _)) = zk.get(&path).await {
            for name in zk.children(&path).await.unwrap() {
                paths.push(format!("{path}/{name}"));
            }
            found.insert(path, data.to_vec());
        }
    }
    found
}

/// Waits until the copy equals the current state.
async fn until_equal(tree: &LiveTree, zk: &zk::Client) {
    let mut changes = tree.changes();
    let expected = truth(zk).await;
    soon(async {
        while contents(&tree.snapshot()) != expected {
            changes.next().await.unwrap();
        }
    })
    .await;
}

async fn copy_is_loaded_and_kept(place: Place) {
    let zk = place.outside();
    make_root(&place).await;
    for path in ["/tree/a", "/tree/a/b", "/tree/a/b/c", "/tree/d"] {
        make(zk, path, path.as_bytes()).await;
    }
    let cache = Cache::new(&place.client().await, "/tree");
    let tree = soon(cache.open()).await.unwrap();
    assert_eq!(contents(&tree.snapshot()), truth(zk).await);
    assert_eq!(tree.get("/tree/a/b").unwrap().data, b"/tree/a/b");
    let (before, mut changes) = tree.snapshot_and_changes();
    zk.set("/tree/d", b"2", None).await.unwrap();
    make(zk, "/tree/e", b"e").await;
    zk.delete("/tree/a/b/c", None).await.unwrap();
    until_equal(&tree, zk).await;
    // Applying the changes to the old state yields the new one.
    let mut copy = before;
    while contents(&copy) != truth(zk).await {
        match soon(changes.next()).await.unwrap() {
            CacheEvent::Changed { path, node } => drop(copy.insert(path, node)),
            CacheEvent::Deleted { path } => drop(copy.remove(&path)),
            other => panic!("{other:?}"),
        }
    }
}

async fn copy_of_nothing_fills_when_something_is_made(place: Place) {
    let cache = Cache::new(&place.client().await, "/tree");
    let tree = soon(cache.open()).await.unwrap();
    assert!(tree.snapshot().is_empty());
    make_root(&place).await;
    make(place.outside(), "/tree/a", b"1").await;
    until_equal(&tree, place.outside()).await;
    place.outside().delete("/tree/a", None).await.unwrap();
    place.outside().delete("/tree", None).await.unwrap();
    until_equal(&tree, place.outside()).await;
    assert!(tree.snapshot().is_empty());
}

async fn t79_copy_is_fresh_after_a_reconnect(place: Place) {
    let zk = place.outside();
    make_root(&place).await;
    for path in ["/tree/a", "/tree/a/b", "/tree/c"] {
        make(zk, path, b"1").await;
    }
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    for round in 0..3 {
        proxy.refuse(true);
        proxy.cut(Cut::Reset).await;
        zk.delete("/tree/a/b", None).await.unwrap();
        zk.delete("/tree/a", None).await.unwrap();
        zk.delete("/tree/c", None).await.unwrap();
        // Created again, with the same version as before.
        make(zk, "/tree/c", format!("{round}").as_bytes()).await;
        make(zk, "/tree/a", b"").await;
        make(zk, "/tree/a/b", b"").await;
        proxy.refuse(false);
        until_equal(&tree, zk).await;
        // It is watched again.
        zk.set("/tree/a", format!("{round}").as_bytes(), None)
            .await
            .unwrap();
        until_equal(&tree, zk).await;
    }
    assert!(!session.state().is_ended());
}

async fn t79_copy_is_fresh_after_a_lost_session(place: Place) {
    let zk = place.outside();
    make_root(&place).await;
    make(zk, "/tree/a", b"1").await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut changes = tree.changes();
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    zk.delete("/tree/a", None).await.unwrap();
    make(zk, "/tree/b", b"1").await;
    proxy.refuse(false);
    while soon(changes.next()).await.unwrap() != CacheEvent::Renewed {}
    until_equal(&tree, zk).await;
    zk.set("/tree/b", b"2", None).await.unwrap();
    until_equal(&tree, zk).await;
}

async fn t83_copy_catches_up_before_it_reads_after_a_reconnect(place: Place) {
    make_root(&place).await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    for is_expired in [false, true] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        proxy.calm();
        let _never = proxy.drop_request_where({
            let seen = seen.clone();
            move |request| {
                if matches!(request.op, Op::Sync | Op::MultiRead) {
                    seen.lock().unwrap().push(request.op);
                }
                false
            }
        });
        match is_expired {
            true => expire(&proxy).await,
            false => proxy.cut(Cut::Reset).await,
        }
        let data = is_expired.to_string();
        let zk = place.outside();
        zk.set("/tree", data.as_bytes(), None).await.unwrap();
        until_equal(&tree, zk).await;
        let seen = seen.lock().unwrap();
        assert_eq!(seen.first(), Some(&Op::Sync), "{seen:?}");
        assert!(seen.contains(&Op::MultiRead), "{seen:?}");
    }
}

async fn slow_listener_is_told_that_it_missed_something(place: Place) {
    make_root(&place).await;
    let tree = soon(Cache::new(&place.client().await, "/tree").open())
        .await
        .unwrap();
    let mut changes = tree.changes();
    fill(place.outside(), (0..5_000).map(|n| format!("/tree/{n}"))).await;
    soon(async {
        let mut later = tree.changes();
        while tree.snapshot().len() < 5_001 {
            later.next().await.unwrap();
        }
    })
    .await;
    assert_eq!(changes.next().await, Some(CacheEvent::Missed));
}

async fn copy_equals_the_tree_after_random_changes_and_cuts(place: Place) {
    let seed = storm::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let zk = place.outside();
    make_root(&place).await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut changes = tree.changes();
    let mut newest = BTreeMap::new();
    let options = zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    for step in 0..400 {
        let mut path = "/tree".to_owned();
        for _ in 0..random.random_range(1..4) {
            path = format!("{path}/{}", random.random_range(0..3));
        }
        let data = step.to_string();
        // Some fail: a parent is missing, or a child exists.
        let _ = match random.random_range(0..4) {
            0 | 1 => zk.create(&path, data.as_bytes(), &options).await.map(drop),
            2 => zk.set(&path, data.as_bytes(), None).await.map(drop),
            _ => zk.delete(&path, None).await,
        };
        match random.random_range(0..40) {
            0 => proxy.cut(Cut::Reset).await,
            1 => expire(&proxy).await,
            _ => {}
        }
    }
    until_equal(&tree, zk).await;
    drop(tree);
    while let Some(change) = soon(changes.next()).await {
        if let CacheEvent::Changed { path, node } = change {
            let before = newest.insert(path.clone(), node.mzxid);
            assert!(before < Some(node.mzxid), "{path} went back, seed {seed}");
        }
    }
}

async fn node_that_was_told_to_be_gone_does_not_come_back(place: Place) {
    let zk = place.outside();
    make_root(&place).await;
    let (proxy, client) = place.counted().await;
    let proxy = Arc::new(proxy);
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut changes = tree.changes();
    for _ in 0..20 {
        make(zk, "/tree/a", b"").await;
        make(zk, "/tree/a/b", b"").await;
        until_equal(&tree, zk).await;
        // The reply to the next read is held, and events of the meantime arrive with it.
        let (held, mut is_held) = mpsc::channel(1);
        let holding = Arc::downgrade(&proxy);
        drop(proxy.drop_request_where(move |request| {
            if request.op == Op::MultiRead && held.try_send(()).is_ok() {
                holding.upgrade().unwrap().hold(Direction::ToClient);
            }
            false
        }));
        zk.set("/tree/a/b", b"2", None).await.unwrap();
        soon(is_held.recv()).await.unwrap();
        zk.sync("/tree").await.unwrap();
        zk.delete("/tree/a/b", None).await.unwrap();
        zk.delete("/tree/a", None).await.unwrap();
        proxy.calm();
        until_equal(&tree, zk).await;
    }
    drop(tree);
    let mut known = BTreeMap::new();
    let mut gone = BTreeSet::new();
    while let Some(change) = soon(changes.next()).await {
        match change {
            CacheEvent::Changed { path, node } => {
                assert!(!gone.contains(&node.czxid), "{path} has come back");
                known.insert(path, node.czxid);
            }
            CacheEvent::Deleted { path } => gone.extend(known.remove(&path)),
            other => panic!("{other:?}"),
        }
    }
}

async fn dropped_copy_leaves_no_watch(place: Place) {
    make_root(&place).await;
    let client = place.client().await;
    let session = client.raw();
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    drop(tree);
    place.until_no_watches().await;
    assert!(!session.state().is_ended());
}

async fn more_than_can_be_watched_one_by_one_is_refused(place: Place) {
    let place = place.before_persistent_watches().await;
    make_root(&place).await;
    let long = "x".repeat(1_000);
    fill(
        place.outside(),
        (0..1_000).map(|n| format!("/tree/{n}-{long}")),
    )
    .await;
    let refused = soon(Cache::new(&place.client().await, "/tree").open()).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
}

async fn copy_that_grows_too_large_to_be_watched_ends(place: Place) {
    let place = place.before_persistent_watches().await;
    make_root(&place).await;
    let client = place.client().await;
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut changes = tree.changes();
    let mut members = Group::new(&client, "/tree").watch();
    let none = soon(members.next()).await.unwrap().unwrap();
    assert_eq!(none, Seen::Value([].into()));
    let long = "x".repeat(1_000);
    fill(
        place.outside(),
        (0..1_000).map(|n| format!("/tree/{n}-{long}")),
    )
    .await;
    soon(async { while changes.next().await.is_some() {} }).await;
    assert_eq!(soon(tree.changes().next()).await, None);
    let refused = loop {
        if let Err(error) = soon(members.next()).await.unwrap() {
            break error;
        }
    };
    assert!(
        matches!(refused.kind, ErrorKind::TooLarge { .. }),
        "{refused:?}"
    );
    assert!(soon(members.next()).await.is_none());
}

/// More than the server returns at once is requested in parts.
#[tokio::test]
async fn copy_of_large_nodes_is_whole() {
    let place = Place::embedded().await;
    make_root(&place).await;
    let large = vec![0; 1_000_000];
    for number in 0..40 {
        make(place.outside(), &format!("/tree/{number}"), &large).await;
    }
    let cache = Cache::new(&place.client().await, "/tree");
    let tree = soon(cache.open()).await.unwrap();
    assert_eq!(tree.snapshot().len(), 41);
}

async fn copy_and_watch_say_when_they_are_stale(place: Place) {
    make_root(&place).await;
    let zk = place.outside();
    make(zk, "/tree/a", b"1").await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let tree = soon(Cache::new(&client, "/tree").open()).await.unwrap();
    let mut watch = Config::<String>::new(&client, "/tree/a").watch();
    assert!(watch.is_stale(), "nothing was read yet");
    soon(watch.next()).await.unwrap().unwrap();
    assert!(!tree.is_stale() && !watch.is_stale());
    let mut states = client.states();
    let mut until = async |state| while soon(states.next()).await != Some(state) {};
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    until(ClientState::Disconnected).await;
    assert!(tree.is_stale() && watch.is_stale());
    // The last copy is still available.
    assert_eq!(tree.get("/tree/a").unwrap().data, b"1");
    proxy.refuse(false);
    until(ClientState::Connected).await;
    zk.set("/tree/a", b"2", None).await.unwrap();
    soon(watch.next()).await.unwrap().unwrap();
    until_equal(&tree, zk).await;
    assert!(!watch.is_stale());
    soon(async {
        while tree.is_stale() {
            zk.sync("/").await.unwrap();
        }
    })
    .await;
}
