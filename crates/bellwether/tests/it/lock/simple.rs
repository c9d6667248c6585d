//! The simple lock: one node that all contenders watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::{ErrorKind, SimpleLock, zk};
use bellwether_wire::op::Op;
use tokio::task::JoinSet;

use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    contenders_exclude_each_other_and_tokens_rise,
    lost_reply_of_the_create_is_found_again,
    create_in_doubt_that_is_given_up_leaves_no_node,
    try_and_timeout_leave_the_holder_alone,
    deletion_by_another_hand_is_told_though_the_name_is_taken_again,
    release_after_a_loss_leaves_the_next_holder_alone,
    release_that_only_looked_is_not_taken_for_done,
    release_that_arrives_late_leaves_the_next_holder_alone,
    create_that_arrives_after_the_release_is_deleted,
    writes_are_not_guarded,
}

async fn contenders_exclude_each_other_and_tokens_rise(place: Place) {
    let holders = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let (client, holders) = (place.client().await, holders.clone());
        tasks.spawn(async move {
            let lock = SimpleLock::new(&client, "/made/simple");
            let mut tokens = Vec::new();
            for _ in 0..10 {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokens.push(guard.token());
                holders.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
            assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
            tokens
        });
    }
    let mut tokens = soon(tasks.join_all()).await.concat();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 50, "two holders had the same token");
}

async fn lost_reply_of_the_create_is_found_again(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lost = proxy.swallow_reply(Op::Multi);
    let guard = soon(SimpleLock::new(&client, "/simple").acquire())
        .await
        .unwrap();
    lost.happened().await.unwrap();
    let stat = place.outside().exists("/simple").await.unwrap();
    assert_eq!(stat.unwrap().czxid, guard.token().number());
    guard.release().await.unwrap();
}

async fn create_in_doubt_that_is_given_up_leaves_no_node(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let lock = SimpleLock::new(&client, "/simple");
    lock.acquire().await.unwrap().release().await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let acquired = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    lost.happened().await.unwrap();
    proxy.refuse(true);
    acquired.abort();
    assert!(acquired.await.unwrap_err().is_cancelled());
    assert!(place.outside().exists("/simple").await.unwrap().is_some());
    proxy.refuse(false);
    soon(async {
        while let (Some(_), gone) = place.outside().exists_watched("/simple").await.unwrap() {
            gone.await.unwrap();
        }
    })
    .await;
    assert!(
        !session.state().is_ended(),
        "the node did not go with its session"
    );
}

async fn try_and_timeout_leave_the_holder_alone(place: Place) {
    let lock = SimpleLock::new(&place.client().await, "/simple");
    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let late = lock.acquire_timeout(Duration::from_millis(50)).await;
    assert_fails!(late, ErrorKind::TimedOut { .. });
    assert!(guard.is_held());
    guard.release().await.unwrap();
    place.until_no_watches().await;
}

async fn deletion_by_another_hand_is_told_though_the_name_is_taken_again(place: Place) {
    let guard = SimpleLock::new(&place.client().await, "/simple")
        .acquire()
        .await
        .unwrap();
    place.outside().delete("/simple", None).await.unwrap();
    let next = soon(SimpleLock::new(&place.client().await, "/simple").acquire())
        .await
        .unwrap();
    soon(guard.lost()).await;
    // Dropping the old guard does not delete the new holder's node.
    drop(guard);
    let other = place.client().await;
    assert!(
        SimpleLock::new(&other, "/simple")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    next.release().await.unwrap();
}

async fn release_after_a_loss_leaves_the_next_holder_alone(place: Place) {
    let guard = SimpleLock::new(&place.client().await, "/simple");
    let guard = guard.acquire().await.unwrap();
    place.outside().delete("/simple", None).await.unwrap();
    let next = SimpleLock::new(&place.client().await, "/simple");
    let next = soon(next.acquire()).await.unwrap();
    let released = guard.release().await;
    assert_fails!(released, ErrorKind::NotHeld);
    assert!(next.is_held());
    next.release().await.unwrap();
}

async fn release_that_only_looked_is_not_taken_for_done(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let guard = SimpleLock::new(&client, "/simple").acquire().await.unwrap();
    let lost = proxy.drop_request(Op::Exists);
    let releasing = tokio::spawn(guard.release());
    lost.happened().await.unwrap();
    // Either this delete or the next try removes it.
    let deleted = place.outside().delete("/simple", None).await;
    let released = soon(releasing).await.unwrap();
    assert_eq!(
        released.is_err(),
        deleted.is_ok(),
        "{released:?} {deleted:?}"
    );
}

/// The node beside the lock whose name is that of one acquisition.
async fn receipt(place: &Place) -> String {
    let names = place.children("/").await;
    let mut receipts = names.iter().filter(|name| name.starts_with("receipt-"));
    let receipt = format!("/{}", receipts.next().unwrap());
    assert_eq!(receipts.next(), None);
    receipt
}

async fn release_that_arrives_late_leaves_the_next_holder_alone(place: Place) {
    let client = place.client().await;
    let guard = SimpleLock::new(&client, "/simple").acquire().await.unwrap();
    let receipt = receipt(&place).await;
    guard.release().await.unwrap();
    let next = SimpleLock::new(&place.client().await, "/simple");
    let next = next.acquire().await.unwrap();
    // As a server forwards it to which it was sent before.
    let session = client.raw();
    let mut late = session.new_multi();
    late.delete(&receipt, None);
    late.delete("/simple", None);
    let late = late.commit().await;
    assert!(
        matches!(late, Err(zk::MultiError::Refused { index: 0, .. })),
        "{late:?}"
    );
    next.release().await.unwrap();
    assert_eq!(place.children("/").await, Vec::<String>::new());
}

async fn create_that_arrives_after_the_release_is_deleted(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lost = proxy.swallow_reply(Op::Multi);
    let lock = SimpleLock::new(&client, "/simple");
    let guard = soon(lock.acquire()).await.unwrap();
    lost.happened().await.unwrap();
    let receipt = receipt(&place).await;
    let (data, _) = place.outside().get("/simple").await.unwrap();
    guard.release().await.unwrap();
    let session = client.raw();
    let mut late = session.new_multi();
    late.create(&receipt, b"", zk::CreateMode::Ephemeral);
    late.create("/simple", &data, zk::CreateMode::Ephemeral);
    late.commit().await.unwrap();
    // It would be held as long as the session lives.
    let next = SimpleLock::new(&place.client().await, "/simple");
    soon(next.acquire()).await.unwrap().release().await.unwrap();
    assert!(!client.raw().state().is_ended());
}

async fn writes_are_not_guarded(place: Place) {
    let guard = SimpleLock::new(&place.client().await, "/simple")
        .acquire()
        .await
        .unwrap();
    let refused = guard.write().commit().await;
    assert_fails!(refused, ErrorKind::Unsupported { .. });
}
