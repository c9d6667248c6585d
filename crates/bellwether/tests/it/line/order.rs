//! Order of the contenders in a line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwether::error::OtherUse;
use bellwether::line::Layout;
use bellwether::{Election, Error, ErrorKind, Lock, RwLock, connect, zk};
use bellwether_testkit::TestServer;
use bellwether_wire::op::Op;
use tokio::task::JoinSet;

use crate::support::place::{Place, SESSION_TIMEOUT, soon, until_reaped};

on_both_engines! {
    t14_order_is_by_sequence_and_not_by_name,
    t15_foreign_children_are_ignored,
    t16_predecessor_that_vanishes_before_it_is_watched_is_not_waited_for,
    t21_deletion_inside_a_multi_wakes_the_next,
    t26_two_tasks_of_one_session_exclude_each_other_over_lost_replies,
    t36_one_handle_serves_many_tasks,
    t94_contender_behind_another_layout_is_refused_and_leaves,
    t94_contenders_of_two_layouts_exclude_each_other_though_they_join_together,
    t94_node_that_only_has_the_name_of_a_contender_is_ignored,
}

/// Creates a node in the directory of a lock, as another program might.
async fn outsider(place: &Place, prefix: &str) -> String {
    let options = zk::CreateMode::EphemeralSequential.with_acl([zk::Acl::open()]);
    let path = format!("/order/{prefix}");
    let created = place.outside().create(&path, b"", &options).await.unwrap();
    created.path
}

async fn t14_order_is_by_sequence_and_not_by_name(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, "/order");
    lock.acquire().await.unwrap().release().await.unwrap();
    // Sorts after everything as text, but is first by its number.
    let first = outsider(&place, "lock-ffffffffffffffff-ffffffffffffffff-").await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    place.until_children("/order", 2).await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    place
        .until_waits_for(&[&first], client.session_id(), &waiter)
        .await;
    place.outside().delete(&first, None).await.unwrap();
    let guard = soon(waiter).await.unwrap().unwrap();
    // Sorts before everything as text, but is last by its number.
    outsider(&place, "lock-0-0000000000000000-").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn t15_foreign_children_are_ignored(place: Place) {
    let lock = Lock::new(&place.client().await, "/order");
    lock.acquire().await.unwrap().release().await.unwrap();
    for prefix in ["", "lock-1-", "0a0a-key-", "0a0a__key__", "notes-1-2-"] {
        outsider(&place, prefix).await;
    }
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

const LAYOUTS: [Layout; 3] = [Layout::Bellwether, Layout::Curator, Layout::Kazoo];

async fn t94_contender_behind_another_layout_is_refused_and_leaves(place: Place) {
    let (first, second) = (place.client().await, place.client().await);
    for held in LAYOUTS {
        for other in LAYOUTS.into_iter().filter(|other| *other != held) {
            let holder = Lock::new(&first, "/order").layout(held);
            let guard = holder.acquire().await.unwrap();
            let lock = Lock::new(&second, "/order").layout(other);
            let write = RwLock::new(&second, "/order").layout(other);
            let errors = [
                soon(lock.acquire()).await.unwrap_err(),
                soon(lock.try_acquire()).await.unwrap_err(),
                soon(write.write()).await.unwrap_err(),
            ];
            for error in errors {
                assert!(
                    matches!(error.kind, ErrorKind::InUse(OtherUse::Layout(_))),
                    "{held:?} {other:?}: {error}"
                );
            }
            place.until_children("/order", 1).await;
            assert!(guard.is_held());
            guard.release().await.unwrap();
            soon(lock.acquire()).await.unwrap().release().await.unwrap();
        }
    }
    // Not all recipes have layouts. They are refused too.
    let kazoo = Lock::new(&first, "/order").layout(Layout::Kazoo);
    let _guard = kazoo.acquire().await.unwrap();
    let refused = soon(Election::new(&second, "/order").campaign()).await;
    let error = refused.unwrap_err();
    assert_eq!(error.to_string(), "/order is in use in the layout of kazoo");
}

async fn t94_contenders_of_two_layouts_exclude_each_other_though_they_join_together(place: Place) {
    let (first, second) = (place.client().await, place.client().await);
    let inside = AtomicUsize::new(0);
    let hold = async |lock: &Lock| {
        let guard = lock.acquire().await?;
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        place.children("/order").await;
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
        Ok::<_, Error>(())
    };
    let ours = Lock::new(&first, "/order");
    let theirs = Lock::new(&second, "/order").layout(Layout::Curator);
    for _ in 0..50 {
        let (one, other) = soon(async { tokio::join!(hold(&ours), hold(&theirs)) }).await;
        assert!(one.is_ok() || other.is_ok(), "the earlier one is served");
        for error in [one.err(), other.err()].into_iter().flatten() {
            assert!(
                matches!(error.kind, ErrorKind::InUse(OtherUse::Layout(_))),
                "{error}"
            );
        }
    }
}

async fn t94_node_that_only_has_the_name_of_a_contender_is_ignored(place: Place) {
    let lock = Lock::new(&place.client().await, "/order");
    lock.acquire().await.unwrap().release().await.unwrap();
    let options = zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    for name in ["lock-0000000000", "a__lock__0000000000"] {
        let path = format!("/order/{name}");
        place.outside().create(&path, b"", &options).await.unwrap();
    }
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

async fn t16_predecessor_that_vanishes_before_it_is_watched_is_not_waited_for(place: Place) {
    let first = Lock::new(&place.client().await, "/order");
    let second = Lock::new(&place.client().await, "/order");
    // Concurrent release and acquire: in some of these rounds the release happens between list and watch.
    for _ in 0..300 {
        let guard = first.acquire().await.unwrap();
        let (released, acquired) =
            soon(async { tokio::join!(guard.release(), second.acquire()) }).await;
        released.unwrap();
        acquired.unwrap().release().await.unwrap();
    }
}

async fn t21_deletion_inside_a_multi_wakes_the_next(place: Place) {
    let holder = Lock::new(&place.client().await, "/order")
        .acquire()
        .await
        .unwrap();
    let waiter = {
        let lock = Lock::new(&place.client().await, "/order");
        tokio::spawn(async move { lock.acquire().await })
    };
    place.until_children("/order", 2).await;
    let mut multi = place.outside().new_multi();
    let options = zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    multi.create("/beside", b"", &options);
    multi.delete(&format!("/order/{}", holder.node()), None);
    multi.commit().await.unwrap();
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn t26_two_tasks_of_one_session_exclude_each_other_over_lost_replies(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let holders = Arc::new(AtomicUsize::new(0));
    for round in 0..6 {
        let lost = proxy.swallow_reply(Op::Create2);
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            let (client, holders) = (client.clone(), holders.clone());
            tasks.spawn(async move {
                let guard = Lock::new(&client, "/order").acquire().await.unwrap();
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            });
        }
        soon(tasks.join_all()).await;
        lost.happened().await.unwrap();
        assert_eq!(place.children("/order").await.len(), 0, "round {round}");
    }
}

async fn t36_one_handle_serves_many_tasks(place: Place) {
    let lock = Arc::new(Lock::new(&place.client().await, "/order"));
    let holders = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (lock, holders) = (lock.clone(), holders.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            tokio::task::yield_now().await;
            holders.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        });
    }
    soon(tasks.join_all()).await;
    assert!(place.children("/order").await.is_empty());
}

// Uses hooks of the embedded server.

#[tokio::test]
async fn t12_newcomer_past_the_last_number_does_not_overtake() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let lock = Lock::new(&client, "/order");
    lock.acquire().await.unwrap().release().await.unwrap();
    server.set_child_counter("/order", i32::MAX).await.unwrap();
    let options = zk::CreateMode::EphemeralSequential.with_acl([zk::Acl::open()]);
    let raw = client.raw();
    let last = raw.create("/order/lock-1-1-", b"", &options).await.unwrap();
    assert_eq!(last.path, format!("/order/lock-1-1-{}", i32::MAX));
    let refused = soon(lock.acquire()).await;
    assert_fails!(refused, ErrorKind::SequenceUsedUp);
    // The predecessor keeps its place, and the newcomer is gone.
    soon(async {
        while raw.children("/order").await.unwrap() != ["lock-1-1-2147483647"] {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn t23_token_rises_though_the_directory_was_reaped() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let lock = Lock::new(&client, "/order");
    let (mut tokens, mut sequences) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        tokens.push(guard.token());
        sequences.push(guard.node().rsplit('-').next().unwrap().to_owned());
        guard.release().await.unwrap();
        until_reaped(&server, &client, "/order").await;
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    // Each directory starts counting again: as a token, the sequence number would not have increased.
    assert!(
        sequences.iter().all(|sequence| *sequence == sequences[0]),
        "{sequences:?}"
    );
}
