//! The read/write lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bellwether::hold::Previous;
use bellwether::{Error, ErrorKind, RwLock, UpgradeError, blocking::Wait};
use bellwether_testkit::Op;

use crate::support::place::{Place, soon};

on_both_engines! {
    readers_share_and_writers_do_not,
    t27_downgrade_keeps_writers_out_and_its_token,
    downgrade_lets_the_readers_behind_in,
    t28_reader_does_not_wait_for_a_later_writer,
    t29_own_node_missing_is_a_typed_error,
    t30_upgrade_is_granted_or_refused_at_once,
    upgrade_of_a_read_side_that_was_taken_away_fails,
    t32_reader_behind_many_writers_wakes_once,
    tries_take_only_what_is_free,
    timeouts_leave_no_node,
    crashed_writer_is_told_of_until_a_writer_releases,
    downgrade_counts_as_a_clean_end_of_the_write_side,
    uncontended_sides_cost_a_create_and_a_list,
    lock_works_without_async,
}

const PATH: &str = "/shared";

async fn rwlock(place: &Place) -> RwLock {
    RwLock::new(&place.client().await, PATH)
}

async fn readers_share_and_writers_do_not(place: Place) {
    // Readers inside, or -1 for a writer.
    let inside = Arc::new(AtomicI32::new(0));
    let mut tasks = Vec::new();
    for task in 0..6 {
        let (lock, inside) = (rwlock(&place).await, inside.clone());
        tasks.push(tokio::spawn(async move {
            for turn in 0..10 {
                if (task + turn) % 3 == 0 {
                    let guard = lock.write().await.unwrap();
                    assert_eq!(
                        inside.swap(-1, Ordering::SeqCst),
                        0,
                        "a writer is not alone"
                    );
                    tokio::task::yield_now().await;
                    assert_eq!(
                        inside.swap(0, Ordering::SeqCst),
                        -1,
                        "a writer was not alone"
                    );
                    guard.release().await.unwrap();
                } else {
                    let guard = lock.read().await.unwrap();
                    let before = inside.fetch_add(1, Ordering::SeqCst);
                    assert!(before >= 0, "a reader beside a writer");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert!(place.children(PATH).await.is_empty());
}

async fn t27_downgrade_keeps_writers_out_and_its_token(place: Place) {
    let writing = rwlock(&place).await.write().await.unwrap();
    let token = writing.token();
    let client = place.client().await;
    let waiting = tokio::spawn({
        let lock = RwLock::new(&client, PATH);
        async move { lock.write().await }
    });
    place.until_children(PATH, 2).await;
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(reading.token(), token);
    // The downgrade wakes the writer behind it, which keeps waiting.
    let node = format!("{PATH}/{}", reading.node());
    place
        .until_waits_for(&[&node], client.session_id(), &waiting)
        .await;
    assert!(reading.is_held());
    reading.release().await.unwrap();
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

async fn downgrade_lets_the_readers_behind_in(place: Place) {
    let writing = rwlock(&place).await.write().await.unwrap();
    let mut readers = Vec::new();
    for number in 0..3 {
        let lock = rwlock(&place).await;
        readers.push(tokio::spawn(async move { lock.read().await }));
        place.until_children(PATH, number + 2).await;
    }
    let reading = writing.downgrade().await.unwrap();
    for reader in readers {
        let reader = soon(reader).await.unwrap().unwrap();
        assert!(reader.token() > reading.token());
        reader.release().await.unwrap();
    }
    // A later reader shares it too.
    let late = soon(rwlock(&place).await.read()).await.unwrap();
    late.release().await.unwrap();
    reading.release().await.unwrap();
}

async fn t28_reader_does_not_wait_for_a_later_writer(place: Place) {
    let first = rwlock(&place).await.write().await.unwrap();
    let lock = rwlock(&place).await;
    let reader = tokio::spawn(async move { lock.read().await });
    place.until_children(PATH, 2).await;
    let client = place.client().await;
    let lock = RwLock::new(&client, PATH);
    let second = tokio::spawn(async move { lock.write().await });
    place.until_children(PATH, 3).await;
    first.release().await.unwrap();
    let reading = soon(reader).await.unwrap().unwrap();
    let node = format!("{PATH}/{}", reading.node());
    place
        .until_waits_for(&[&node], client.session_id(), &second)
        .await;
    reading.release().await.unwrap();
    soon(second)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn t29_own_node_missing_is_a_typed_error(place: Place) {
    let writing = rwlock(&place).await.write().await.unwrap();
    let lock = rwlock(&place).await;
    let waiter = tokio::spawn(async move { lock.read().await });
    place.until_children(PATH, 2).await;
    let mut names = place.children(PATH).await;
    // The waiter's first, or it would be granted.
    names.sort();
    for name in names {
        let path = format!("{PATH}/{name}");
        place.outside().delete(&path, None).await.unwrap();
    }
    let waited = soon(waiter).await.unwrap();
    assert_fails!(waited, ErrorKind::Removed);
    let downgraded = writing.downgrade().await;
    assert_fails!(downgraded, ErrorKind::NotHeld);
}

async fn t30_upgrade_is_granted_or_refused_at_once(place: Place) {
    let lock = rwlock(&place).await;
    let alone = lock.read().await.unwrap();
    let token = alone.token();
    let upgraded = soon(alone.try_upgrade()).await.unwrap();
    assert!(upgraded.token() > token);
    place.until_children(PATH, 1).await;
    assert!(lock.try_read().await.unwrap().is_none());
    upgraded.release().await.unwrap();

    for _ in 0..100 {
        let (one, other) = tokio::join!(lock.read(), lock.read());
        let (one, other) = tokio::join!(
            soon(one.unwrap().try_upgrade()),
            soon(other.unwrap().try_upgrade())
        );
        for refused in [one, other] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, UpgradeError::Refused { .. }));
            let guard = refused.into_guard();
            assert!(guard.is_held());
            guard.release().await.unwrap();
        }
    }

    let reading = lock.read().await.unwrap();
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await }
    });
    place.until_children(PATH, 2).await;
    let refused = soon(reading.try_upgrade()).await.unwrap_err();
    refused.into_guard().release().await.unwrap();
    soon(writer)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    place.until_children(PATH, 0).await;
}

async fn upgrade_of_a_read_side_that_was_taken_away_fails(place: Place) {
    let reading = rwlock(&place).await.read().await.unwrap();
    let node = format!("{PATH}/{}", reading.node());
    place.outside().delete(&node, None).await.unwrap();
    // What it has read may be outdated.
    let writing = rwlock(&place).await.write().await.unwrap();
    writing.release().await.unwrap();
    let upgraded = reading.try_upgrade().await;
    assert!(
        matches!(
            &upgraded,
            Err(UpgradeError::Failed {
                source: Error {
                    kind: ErrorKind::Removed,
                    ..
                },
                ..
            })
        ),
        "{upgraded:?}"
    );
    place.until_children(PATH, 0).await;
}

async fn t32_reader_behind_many_writers_wakes_once(place: Place) {
    let lock = rwlock(&place).await;
    let first = lock.write().await.unwrap();
    let mut writers = Vec::new();
    for _ in 1..5 {
        writers.push(tokio::spawn(lock.join_write().await.unwrap().turn()));
    }
    let (proxy, client) = place.counted().await;
    let reader = tokio::spawn(async move { RwLock::new(&client, PATH).read().await });
    place.until_children(PATH, 6).await;
    soon(async {
        while proxy.count(Op::GetData) == 0 {
            // The watch has not begun yet.
            place.outside().exists("/").await.unwrap();
        }
    })
    .await;
    first.release().await.unwrap();
    for writer in writers {
        soon(writer)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let reading = soon(reader).await.unwrap().unwrap();
    assert_eq!(proxy.events(), 1);
    assert_eq!(
        proxy.count(Op::GetChildren) + proxy.count(Op::GetChildren2),
        2
    );
    reading.release().await.unwrap();
}

async fn tries_take_only_what_is_free(place: Place) {
    let (one, other) = (rwlock(&place).await, rwlock(&place).await);
    let reading = one.try_read().await.unwrap().expect("it is free");
    let beside = other.try_read().await.unwrap().expect("readers share");
    assert!(other.try_write().await.unwrap().is_none());
    beside.release().await.unwrap();
    reading.release().await.unwrap();
    let writing = one.try_write().await.unwrap().expect("it is free");
    assert!(other.try_read().await.unwrap().is_none());
    assert!(other.try_write().await.unwrap().is_none());
    assert_eq!(place.children(PATH).await.len(), 1);
    writing.release().await.unwrap();
}

async fn timeouts_leave_no_node(place: Place) {
    let lock = rwlock(&place).await;
    let guard = lock.write().await.unwrap();
    let limit = Duration::from_millis(50);
    let (read, write) = tokio::join!(lock.read_timeout(limit), lock.write_timeout(limit));
    assert_fails!(read, ErrorKind::TimedOut { .. });
    assert_fails!(write, ErrorKind::TimedOut { .. });
    place.until_children(PATH, 1).await;
    guard.release().await.unwrap();
}

async fn crashed_writer_is_told_of_until_a_writer_releases(place: Place) {
    let lock = rwlock(&place).await.crash_mark();
    let crashing = lock.write().await.unwrap();
    assert_eq!(*crashing.previous(), Previous::Clean);
    crashing.note("half way").await.unwrap();
    let token = crashing.token();
    drop(crashing);
    // A reader reports it, and changes nothing.
    for _ in 0..2 {
        let reading = soon(lock.read()).await.unwrap();
        let Previous::Crashed(crash) = reading.previous() else {
            panic!("{:?}", reading.previous());
        };
        assert_eq!(crash.token, Some(token));
        assert_eq!(crash.note.as_deref(), Some(b"half way".as_slice()));
        reading.release().await.unwrap();
    }
    let repairing = lock.write().await.unwrap();
    assert!(matches!(repairing.previous(), Previous::Crashed(_)));
    repairing.release().await.unwrap();
    let reading = lock.read().await.unwrap();
    assert_eq!(*reading.previous(), Previous::Clean);
    reading.release().await.unwrap();
}

async fn downgrade_counts_as_a_clean_end_of_the_write_side(place: Place) {
    let lock = rwlock(&place).await.crash_mark();
    let reading = lock.write().await.unwrap().downgrade().await.unwrap();
    drop(reading);
    let writing = soon(lock.write()).await.unwrap();
    assert_eq!(*writing.previous(), Previous::Clean);
    let reading = writing.downgrade().await.unwrap();
    let upgraded = reading.try_upgrade().await.unwrap();
    drop(upgraded);
    let writing = soon(lock.write()).await.unwrap();
    assert!(matches!(writing.previous(), Previous::Crashed(_)));
    writing.release().await.unwrap();
    place.until_children(PATH, 0).await;
}

async fn uncontended_sides_cost_a_create_and_a_list(place: Place) {
    let (proxy, client) = place.counted().await;
    let lock = RwLock::new(&client, PATH);
    lock.write().await.unwrap().release().await.unwrap();
    for side in ["write", "read"] {
        proxy.reset_counts();
        match side {
            "write" => lock.write().await.unwrap().release().await.unwrap(),
            _ => lock.read().await.unwrap().release().await.unwrap(),
        }
        let mut counts = proxy.counts();
        // A hold that lasts longer is watched; no caller waits for that.
        counts.remove(&Op::GetData);
        let expected = [Op::Create2, Op::GetChildren, Op::Delete].map(|op| (op, 1));
        assert_eq!(counts, HashMap::from(expected), "{side}");
    }
}

async fn lock_works_without_async(place: Place) {
    let lock = rwlock(&place).await;
    let worker = std::thread::spawn(move || {
        let guard = lock.write().wait().unwrap();
        let guard = guard.downgrade().wait().unwrap();
        guard.release().wait().unwrap();
    });
    tokio::task::spawn_blocking(|| worker.join().unwrap())
        .await
        .unwrap();
}
