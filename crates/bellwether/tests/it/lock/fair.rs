//! The fair lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether::{Error, ErrorKind, Lock, MultiLock, SimpleLock, connect};
use tokio::sync::mpsc;

use crate::support::place::{Place, soon};

on_both_engines! {
    five_tasks_exclude_each_other_and_tokens_rise,
    contenders_are_served_in_order_of_arrival,
    waiter_in_the_middle_that_leaves_lets_nobody_in,
    try_acquire_takes_only_a_free_lock,
    try_does_not_meet_what_was_given_up_before,
    place_that_was_taken_away_has_no_turn,
    timeout_leaves_no_node,
    lost_when_another_hand_deletes_the_node,
    data_written_to_the_own_node_is_no_loss,
    waiter_hears_when_its_node_is_deleted,
    dropped_guard_lets_the_next_one_in,
    closing_gives_the_locks_of_the_session_back,
    bad_path_is_refused,
}

async fn five_tasks_exclude_each_other_and_tokens_rise(place: Place) {
    let busy = Arc::new(AtomicBool::new(false));
    let (sender, mut tokens) = mpsc::unbounded_channel();
    let shared = place.client().await;
    for task in 0..5 {
        // Two tasks share a session, the others have their own.
        let client = if task < 2 {
            shared.clone()
        } else {
            place.client().await
        };
        let (busy, sender) = (busy.clone(), sender.clone());
        tokio::spawn(async move {
            let lock = Lock::new(&client, "/jobs/nightly");
            for _ in 0..10 {
                let guard = lock.acquire().await.unwrap();
                assert!(!busy.swap(true, Ordering::SeqCst), "two holders at once");
                sender.send(guard.token()).unwrap();
                tokio::task::yield_now().await;
                assert!(guard.is_held());
                busy.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    drop(sender);
    let mut seen = Vec::new();
    while let Some(token) = soon(tokens.recv()).await {
        seen.push(token);
    }
    assert_eq!(seen.len(), 50);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert!(place.children("/jobs/nightly").await.is_empty());
}

async fn contenders_are_served_in_order_of_arrival(place: Place) {
    let holder = Lock::new(&place.client().await, "/queue")
        .acquire()
        .await
        .unwrap();
    let (sender, mut order) = mpsc::unbounded_channel();
    for number in 0..4 {
        let (client, sender) = (place.client().await, sender.clone());
        tokio::spawn(async move {
            let guard = Lock::new(&client, "/queue").acquire().await.unwrap();
            sender.send(number).unwrap();
            guard.release().await.unwrap();
        });
        place.until_children("/queue", number + 2).await;
    }
    assert!(order.try_recv().is_err(), "a contender overtook the holder");
    holder.release().await.unwrap();
    for number in 0..4 {
        assert_eq!(soon(order.recv()).await, Some(number));
    }
}

async fn waiter_in_the_middle_that_leaves_lets_nobody_in(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, "/queue");
    let holder = lock.acquire().await.unwrap();
    let middle = tokio::spawn(lock.join().await.unwrap().turn());
    let (sender, mut got) = mpsc::unbounded_channel();
    let last = lock.join().await.unwrap();
    tokio::spawn(async move { sender.send(last.turn().await.unwrap()).unwrap() });
    place.until_children("/queue", 3).await;
    middle.abort();
    place.until_children("/queue", 2).await;
    // A round trip of the waiter's own session: its wake-up has been handled when this is answered.
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(
        got.try_recv().is_err(),
        "a waiter's end was taken for the holder's"
    );
    holder.release().await.unwrap();
    soon(got.recv()).await.unwrap().release().await.unwrap();
}

async fn try_acquire_takes_only_a_free_lock(place: Place) {
    let lock = Lock::new(&place.client().await, "/try");
    let guard = lock.try_acquire().await.unwrap().expect("it is free");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(place.children("/try").await.len(), 1);
    guard.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

async fn try_does_not_meet_what_was_given_up_before(place: Place) {
    let client = place.client().await;
    let (lock, other) = (Lock::new(&client, "/try"), Lock::new(&client, "/other"));
    let both = MultiLock::new([lock.clone(), other.clone()]);
    let simple = SimpleLock::new(&client, "/simple");
    for _ in 0..20 {
        drop(lock.try_acquire().await.unwrap().expect("it is free"));
        drop(both.try_acquire().await.unwrap().expect("both are free"));
        drop(simple.try_acquire().await.unwrap().expect("it is free"));
        let mut acquiring = Box::pin(lock.acquire());
        tokio::select! {
            biased;
            guard = &mut acquiring => drop(guard.unwrap()),
            () = tokio::task::yield_now() => {}
        }
        drop(acquiring);
    }
    drop(
        lock.try_acquire()
            .await
            .unwrap()
            .expect("there is no waiter"),
    );
}

async fn place_that_was_taken_away_has_no_turn(place: Place) {
    let client = place.client().await;
    let waiting = Lock::new(&client, "/taken").join().await.unwrap();
    let node = format!("/taken/{}", place.children("/taken").await[0]);
    place.outside().delete(&node, None).await.unwrap();
    let other = Lock::new(&place.client().await, "/taken");
    let other = other.acquire().await.unwrap();
    let turn = waiting.turn().await;
    assert_fails!(turn, ErrorKind::Removed);
    other.release().await.unwrap();
}

async fn timeout_leaves_no_node(place: Place) {
    let lock = Lock::new(&place.client().await, "/limit");
    let guard = lock.acquire().await.unwrap();
    let late = lock.acquire_timeout(Duration::from_millis(50)).await;
    assert_fails!(late, ErrorKind::TimedOut { .. });
    place.until_children("/limit", 1).await;
    guard.release().await.unwrap();
    lock.acquire_timeout(Duration::from_secs(10))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn lost_when_another_hand_deletes_the_node(place: Place) {
    let guard = Lock::new(&place.client().await, "/wiped")
        .acquire()
        .await
        .unwrap();
    let name = place.children("/wiped").await.remove(0);
    place
        .outside()
        .delete(&format!("/wiped/{name}"), None)
        .await
        .unwrap();
    soon(guard.lost()).await;
    assert!(!guard.is_held());
    assert!(matches!(
        guard.release().await,
        Err(Error {
            kind: ErrorKind::NotHeld,
            ..
        })
    ));
}

async fn data_written_to_the_own_node_is_no_loss(place: Place) {
    let guard = Lock::new(&place.client().await, "/asked")
        .acquire()
        .await
        .unwrap();
    let node = format!("/asked/{}", place.children("/asked").await.remove(0));
    place.outside().set(&node, b"unlock", None).await.unwrap();
    assert!(guard.is_held());
    place.outside().delete(&node, None).await.unwrap();
    soon(guard.lost()).await;
}

async fn waiter_hears_when_its_node_is_deleted(place: Place) {
    let lock = Lock::new(&place.client().await, "/queue");
    let holder = lock.acquire().await.unwrap();
    let first = place.children("/queue").await.remove(0);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    place.until_children("/queue", 2).await;
    let second = place
        .children("/queue")
        .await
        .into_iter()
        .find(|name| *name != first)
        .unwrap();
    place
        .outside()
        .delete(&format!("/queue/{second}"), None)
        .await
        .unwrap();
    let waited = soon(waiter).await.unwrap();
    assert_fails!(waited, ErrorKind::Removed);
    holder.release().await.unwrap();
}

async fn dropped_guard_lets_the_next_one_in(place: Place) {
    let lock = Lock::new(&place.client().await, "/dropped");
    drop(lock.acquire().await.unwrap());
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

async fn closing_gives_the_locks_of_the_session_back(place: Place) {
    let client = place.client().await;
    let guard = Lock::new(&client, "/closed").acquire().await.unwrap();
    let id = client.session_id();
    assert!(place.children("/closed").await[0].contains(&format!("-{:x}-", id.number())));
    drop(guard);
    soon(client.close()).await;
    assert!(place.children("/closed").await.is_empty());
}

async fn bad_path_is_refused(place: Place) {
    let client = place.client().await;
    for path in ["", "jobs", "/", "/a//b"] {
        let refused = Lock::new(&client, path).acquire().await;
        assert!(
            matches!(
                refused,
                Err(Error {
                    kind: ErrorKind::BadPath(_),
                    ..
                })
            ),
            "{path:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let refused = soon(
        connect(format!("127.0.0.1:{port}"))
            .fail_fast()
            .into_future(),
    )
    .await;
    assert!(
        matches!(
            refused,
            Err(bellwether::error::ConnectError::Unreachable { .. })
        ),
        "{refused:?}"
    );
}
