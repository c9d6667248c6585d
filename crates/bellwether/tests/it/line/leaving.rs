//! Nodes and watches of contenders that left: none stays behind.

use std::time::{Duration, Instant};

use bellwether::{ErrorKind, Lock, SimpleLock};
use bellwether_testkit::Direction;
use bellwether_wire::op::Op;
use tokio::task::JoinSet;

use crate::support::dropping::{drop_when_woken, requests, until_request};
use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    t08_acquire_dropped_at_any_await_leaves_nothing,
    t09_try_that_lost_the_race_on_a_broken_connection_leaves_no_contender,
    t11_release_that_is_sent_again_spares_the_next_acquisition,
    t18_contended_cycles_leave_no_watches,
    t19_tries_that_timed_out_leave_no_watches,
    t20_waiter_dropped_while_its_event_is_in_flight_harms_nobody,
    t34_timeout_is_for_the_whole_wait,
}

/// So that a future is dropped while the reply it waits for is in flight.
const REPLY_DELAY: Duration = Duration::from_millis(10);

async fn t08_acquire_dropped_at_any_await_leaves_nothing(place: Place) {
    for marked in [false, true] {
        let (proxy, client) = place.counted().await;
        proxy.delay(Direction::ToClient, REPLY_DELAY);
        let path = format!("/leaving-{marked}");
        let [lock, other] = [client, place.client().await].map(|client| {
            let lock = Lock::new(&client, &path);
            match marked {
                true => lock.crash_mark(),
                false => lock,
            }
        });
        let acquire = async || lock.acquire().await.unwrap().release().await.unwrap();

        // Alone in the line, and the directory is missing the first time.
        let mut dropped = 0;
        while soon(until_request(&proxy, dropped + 1, acquire()))
            .await
            .is_none()
        {
            dropped += 1;
            assert!(dropped < 50, "a cycle has some five requests");
            place.until_children(&path, 0).await;
        }
        // Create, list and delete, and the mark.
        let least = 3 + usize::from(marked);
        assert!(dropped >= least, "dropped at {dropped} points only");
        // Everything is answered, but the caller has dropped the future.
        drop_when_woken(&proxy, lock.acquire()).await;
        place.until_children(&path, 0).await;

        // Behind a holder that stays, and behind one that leaves at the same time.
        let holder = other.acquire().await.unwrap();
        proxy.reset_counts();
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        place.until_children(&path, 2 + usize::from(marked)).await;
        // Both watch the holder's node, and the waiter its own.
        soon(async { while place.watches().await < 3 {} }).await;
        let to_wait = requests(&proxy);
        waiter.abort();
        holder.release().await.unwrap();
        for count in 1..=to_wait {
            place.until_children(&path, 0).await;
            let holder = other.acquire().await.unwrap();
            let waited = soon(until_request(&proxy, count, lock.acquire())).await;
            assert!(waited.is_none(), "{waited:?} beside the holder");
            holder.release().await.unwrap();
            place.until_children(&path, 0).await;

            let holder = other.acquire().await.unwrap();
            let waited = until_request(&proxy, count, acquire());
            let (_, released) = soon(async { tokio::join!(waited, holder.release()) }).await;
            released.unwrap();
        }
        place.until_children(&path, 0).await;
    }
    place.until_no_watches().await;
}

async fn t09_try_that_lost_the_race_on_a_broken_connection_leaves_no_contender(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let lock = Lock::new(&client, "/leaving");
    lock.acquire().await.unwrap().release().await.unwrap();
    // The read finds no node; before the create arrives, another contender has made one.
    let dropped = proxy.drop_request(Op::Create2);
    proxy.refuse(true);
    let tried = tokio::spawn({
        let lock = lock.clone();
        async move { lock.try_acquire().await }
    });
    dropped.happened().await.unwrap();
    let holder = Lock::new(&place.client().await, "/leaving")
        .acquire()
        .await
        .unwrap();
    let cleanup_lost = proxy.drop_request(Op::Delete);
    proxy.refuse(false);
    assert!(soon(tried).await.unwrap().unwrap().is_none());
    cleanup_lost.happened().await.unwrap();
    place.until_children("/leaving", 1).await;
    holder.release().await.unwrap();
    assert!(
        !session.state().is_ended(),
        "the contender did not go with its session"
    );
}

async fn t11_release_that_is_sent_again_spares_the_next_acquisition(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let other = place.client().await;

    let lock = Lock::new(&client, "/leaving");
    let guard = lock.acquire().await.unwrap();
    let lost = proxy.swallow_reply(Op::Delete);
    let released = tokio::spawn(guard.release());
    lost.happened().await.unwrap();
    let next = soon(Lock::new(&other, "/leaving").acquire()).await.unwrap();
    soon(released).await.unwrap().unwrap();
    assert_eq!(place.children("/leaving").await, [next.node()]);
    next.release().await.unwrap();

    // Here the next node has the same name.
    let guard = SimpleLock::new(&client, "/simple").acquire().await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let released = tokio::spawn(guard.release());
    lost.happened().await.unwrap();
    proxy.refuse(true);
    let next = soon(SimpleLock::new(&other, "/simple").acquire())
        .await
        .unwrap();
    proxy.refuse(false);
    soon(released).await.unwrap().unwrap();
    let stat = place.outside().exists("/simple").await.unwrap();
    assert_eq!(stat.unwrap().czxid, next.token().number());
    next.release().await.unwrap();
}

async fn t18_contended_cycles_leave_no_watches(place: Place) {
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let lock = Lock::new(&place.client().await, "/leaving");
        tasks.spawn(async move {
            for _ in 0..2_500 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
            // The session continues, so that nothing is deleted by its end.
            lock
        });
    }
    let locks = tokio::time::timeout(Duration::from_secs(100), tasks.join_all())
        .await
        .unwrap();
    place.until_no_watches().await;
    assert_eq!(locks.len(), 4);
}

async fn t19_tries_that_timed_out_leave_no_watches(place: Place) {
    let client = place.client().await;
    let holder = Lock::new(&client, "/leaving").acquire().await.unwrap();
    for _ in 0..20 {
        let mut tries = JoinSet::new();
        for _ in 0..50 {
            let lock = Lock::new(&client, "/leaving");
            tries.spawn(async move { lock.acquire_timeout(Duration::from_millis(5)).await });
        }
        for tried in soon(tries.join_all()).await {
            assert_fails!(tried, ErrorKind::TimedOut { .. });
        }
    }
    place.until_children("/leaving", 1).await;
    holder.release().await.unwrap();
    place.until_no_watches().await;
}

async fn t20_waiter_dropped_while_its_event_is_in_flight_harms_nobody(place: Place) {
    let client = place.client().await;
    let session = client.raw();
    let lock = Lock::new(&client, "/leaving");
    for _ in 0..100 {
        let holder = lock.acquire().await.unwrap();
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        place.until_children("/leaving", 2).await;
        // The event of the release races with the end of the waiter.
        let (released, ()) = tokio::join!(holder.release(), async { waiter.abort() });
        released.unwrap();
        if let Ok(guard) = waiter.await {
            guard.unwrap().release().await.unwrap();
        }
    }
    assert!(!session.state().is_ended());
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
    place.until_no_watches().await;
}

async fn t34_timeout_is_for_the_whole_wait(place: Place) {
    const LIMIT: Duration = Duration::from_millis(1_000);
    let client = place.client().await;
    let lock = Lock::new(&client, "/leaving");
    let holder = lock.acquire().await.unwrap();
    // A long line whose members leave one after the other, each well within the limit.
    let mut line = Vec::new();
    for _ in 0..30 {
        line.push(tokio::spawn(lock.join().await.unwrap().turn()));
    }
    let started = Instant::now();
    let wait = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_timeout(LIMIT).await }
    });
    let mut leave = tokio::time::interval(LIMIT / 5);
    while let Some(last) = line.pop() {
        leave.tick().await;
        if wait.is_finished() {
            break;
        }
        last.abort();
    }
    let waited = soon(wait).await.unwrap();
    assert_fails!(waited, ErrorKind::TimedOut { .. });
    // If each wake-up had restarted the limit, this would have taken until all had left.
    assert!(!line.is_empty(), "after {:?}", started.elapsed());
    holder.release().await.unwrap();
}
