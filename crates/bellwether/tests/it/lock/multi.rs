//! Several locks at once.

use std::time::{Duration, Instant};

use bellwether::{Error, ErrorKind, Lock, MultiLock, connect};

use crate::support::place::{Place, soon};

on_both_engines! {
    t33_opposite_orders_never_deadlock_and_one_limit_is_for_all,
    all_or_none_are_held,
    loss_of_one_is_loss_of_all,
    loss_of_one_ends_the_wait_for_the_next,
    locks_of_two_chroots_are_told_apart_by_their_paths_on_the_servers,
    same_lock_with_different_options_is_refused,
}

#[tokio::test]
async fn locks_on_different_servers_are_refused() {
    let (place, other) = (Place::embedded().await, Place::embedded().await);
    let locks = [&place, &other].map(async |place| Lock::new(&place.client().await, "/x"));
    let [one, other] = locks;
    let both = MultiLock::new([one.await, other.await]);
    let refused = soon(both.acquire()).await;
    assert!(
        matches!(&refused, Err(Error { kind: ErrorKind::Unsupported { .. }, path, .. }) if path == "/x"),
        "{refused:?}"
    );
    assert!(soon(both.try_acquire()).await.is_err());
}

async fn multi_lock<const N: usize>(place: &Place, paths: [&str; N]) -> MultiLock {
    let client = place.client().await;
    MultiLock::new(paths.map(|path| Lock::new(&client, path)))
}

async fn t33_opposite_orders_never_deadlock_and_one_limit_is_for_all(place: Place) {
    let mut tasks = Vec::new();
    for paths in [["/x", "/y"], ["/y", "/x"]] {
        let both = multi_lock(&place, paths).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..1000 {
                let guard = both.acquire().await.unwrap();
                assert!(guard.token("/x").is_some() && guard.token("/y").is_some());
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        let limit = Duration::from_secs(120);
        tokio::time::timeout(limit, task).await.unwrap().unwrap();
    }

    // Each wait alone is within the limit, both together are not.
    let client = place.client().await;
    let x = Lock::new(&client, "/x").acquire().await.unwrap();
    let y = Lock::new(&client, "/y").acquire().await.unwrap();
    let limit = Duration::from_secs(1);
    let both = multi_lock(&place, ["/y", "/x"]).await;
    let started = Instant::now();
    let mut waiting = tokio::spawn(async move { both.acquire_timeout(limit).await });
    place.until_children("/x", 2).await;
    let most = tokio::time::timeout(limit * 9 / 10, &mut waiting).await;
    assert!(most.is_err(), "{most:?}");
    x.release().await.unwrap();
    let late = soon(waiting).await.unwrap().unwrap_err();
    assert!(
        matches!(late.kind, ErrorKind::TimedOut { .. }) && late.path == "/y",
        "{late}"
    );
    assert!(
        started.elapsed() < limit * 18 / 10,
        "the limit was for each"
    );
    y.release().await.unwrap();
    place.until_children("/x", 0).await;
    place.until_children("/y", 0).await;
}

async fn all_or_none_are_held(place: Place) {
    let other = Lock::new(&place.client().await, "/b")
        .acquire()
        .await
        .unwrap();
    let all = multi_lock(&place, ["/c", "/a", "/b", "/a"]).await;
    assert!(all.try_acquire().await.unwrap().is_none());
    place.until_children("/a", 0).await;
    other.release().await.unwrap();
    let guard = all.try_acquire().await.unwrap().expect("all are free");
    let paths = guard.guards().iter().map(|guard| guard.path());
    assert_eq!(paths.collect::<Vec<_>>(), ["/a", "/b", "/c"]);
    assert!(guard.is_held());
    let waiting = tokio::spawn(async move { all.acquire().await });
    place.until_children("/a", 2).await;
    waiting.abort();
    place.until_children("/a", 1).await;
    guard.release().await.unwrap();
    for path in ["/a", "/b", "/c"] {
        assert!(place.children(path).await.is_empty());
    }
}

async fn loss_of_one_is_loss_of_all(place: Place) {
    let guard = multi_lock(&place, ["/a", "/b"])
        .await
        .acquire()
        .await
        .unwrap();
    let node = format!("/b/{}", guard.guards()[1].node());
    place.outside().delete(&node, None).await.unwrap();
    soon(guard.lost()).await;
    assert!(!guard.is_held());
    assert!(guard.release().await.is_err());
    assert!(place.children("/a").await.is_empty());
}

async fn loss_of_one_ends_the_wait_for_the_next(place: Place) {
    let other = Lock::new(&place.client().await, "/b");
    let other = other.acquire().await.unwrap();
    let both = multi_lock(&place, ["/a", "/b"]).await;
    let waiting = tokio::spawn(async move { both.acquire().await });
    place.until_children("/b", 2).await;
    let node = format!("/a/{}", place.children("/a").await[0]);
    place.outside().delete(&node, None).await.unwrap();
    let ended = soon(waiting).await.unwrap();
    assert!(
        matches!(&ended, Err(Error { kind: ErrorKind::Lost, path, .. }) if path == "/a"),
        "{ended:?}"
    );
    place.until_children("/b", 1).await;
    other.release().await.unwrap();
}

async fn locks_of_two_chroots_are_told_apart_by_their_paths_on_the_servers(place: Place) {
    let outer = place.client().await;
    let address = format!("{}{}/below", place.server(), place.chroot());
    let inner = connect(address).await.unwrap();
    let guards = async |locks: Vec<Lock>| soon(MultiLock::new(locks).acquire()).await.unwrap();
    // The same text, and two locks.
    let both = guards(vec![Lock::new(&inner, "/x"), Lock::new(&outer, "/x")]).await;
    assert_eq!(both.guards().len(), 2);
    for path in ["/x", "/below/x"] {
        assert_eq!(place.children(path).await.len(), 1, "{path}");
    }
    both.release().await.unwrap();
    // Two texts, and the same lock: it would wait for itself.
    let one = guards(vec![
        Lock::new(&outer, "/below/x"),
        Lock::new(&inner, "/x"),
        Lock::new(&place.client().await, "/below/x"),
    ])
    .await;
    assert_eq!(one.guards().len(), 1);
    one.release().await.unwrap();
    // All users of two locks need the same order, whatever their chroots are.
    let ordered = MultiLock::new([Lock::new(&inner, "/a"), Lock::new(&outer, "/b")]);
    assert_eq!(ordered.paths().collect::<Vec<_>>(), ["/b", "/a"]);
}

async fn same_lock_with_different_options_is_refused(place: Place) {
    let client = place.client().await;
    let plain = Lock::new(&client, "/x");
    let marked = plain.clone().crash_mark();
    let refused = soon(MultiLock::new([plain.clone(), marked]).acquire()).await;
    assert_fails!(refused, ErrorKind::Unsupported { .. });
    let same = MultiLock::new([plain.clone(), plain.message("why")]);
    assert_eq!(soon(same.acquire()).await.unwrap().guards().len(), 1);
}
