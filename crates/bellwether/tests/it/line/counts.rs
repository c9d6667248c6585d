//! Cost of the recipes: requests, counted between client and server.

use std::collections::{BTreeMap, VecDeque};

use bellwether::{Lock, SimpleLock};
use bellwether_testkit::FaultProxy;
use bellwether_wire::op::Op;
use tokio::task::JoinSet;

use crate::support::place::{Place, soon};

on_both_engines! {
    uncontended_cycle_is_three_requests_in_two_round_trips,
    missing_parents_are_made_in_one_go,
    failed_try_is_one_read,
    successful_try_looks_first,
    cycle_behind_a_holder_is_five_requests,
    hand_over_costs_the_same_however_many_wait,
    simple_lock_wakes_the_herd,
}

/// A session timeout so long that no heartbeat is due.
pub(crate) const LONG: std::time::Duration = std::time::Duration::from_secs(60);

/// Requests since the last reset, except the client's pings.
pub(crate) fn requests(proxy: &FaultProxy) -> BTreeMap<String, usize> {
    let counts = proxy.counts().into_iter();
    counts
        .filter(|(op, _)| *op != Op::Ping)
        .map(|(op, count)| (format!("{op:?}"), count))
        .collect()
}

pub(crate) fn expected<const N: usize>(requests: [(Op, usize); N]) -> BTreeMap<String, usize> {
    requests
        .into_iter()
        .map(|(op, count)| (format!("{op:?}"), count))
        .collect()
}

/// Waits until a proxy has forwarded `count` requests, not counting the client's pings.
pub(crate) async fn until_sent(proxy: &FaultProxy, count: usize) {
    soon(async {
        while requests(proxy).values().sum::<usize>() < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn uncontended_cycle_is_three_requests_in_two_round_trips(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let lock = Lock::new(&client, "/counts");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.reset_counts();
    let guard = lock.acquire().await.unwrap();
    // The list is sent right after the create, before either is answered.
    assert_eq!(
        requests(&proxy),
        expected([(Op::Create2, 1), (Op::GetChildren, 1)])
    );
    guard.release().await.unwrap();
    let mut sent = requests(&proxy);
    // On a slow machine the hold is old enough for a watch on its node.
    sent.remove("GetData");
    assert_eq!(
        sent,
        expected([(Op::Create2, 1), (Op::GetChildren, 1), (Op::Delete, 1)])
    );
}

async fn missing_parents_are_made_in_one_go(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    proxy.reset_counts();
    let lock = Lock::new(&client, "/a/b/c/d");
    let guard = lock.acquire().await.unwrap();
    // Two levels of the chroot are missing too. Create and list fail, the directories are created together, then both are retried.
    assert_eq!(
        requests(&proxy),
        expected([(Op::Create2, 2), (Op::GetChildren, 2), (Op::Multi, 2 + 4)])
    );
    guard.release().await.unwrap();
}

async fn failed_try_is_one_read(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let lock = Lock::new(&client, "/counts");
    let holder = Lock::new(&place.client().await, "/counts")
        .acquire()
        .await
        .unwrap();
    proxy.reset_counts();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(requests(&proxy), expected([(Op::GetChildren, 1)]));
    holder.release().await.unwrap();
}

async fn successful_try_looks_first(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let lock = Lock::new(&client, "/counts");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.reset_counts();
    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert_eq!(
        requests(&proxy),
        expected([(Op::Create2, 1), (Op::GetChildren, 2)])
    );
    guard.release().await.unwrap();
}

async fn cycle_behind_a_holder_is_five_requests(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let lock = Lock::new(&client, "/counts");
    let other = Lock::new(&place.client().await, "/counts");
    // With one contender before it: both watches, and no list when it wakes. With two: one watch and a list.
    for before in [1, 2] {
        let first = other.acquire().await.unwrap();
        let mut holders = vec![first];
        let mut waiting = Vec::new();
        for _ in 1..before {
            waiting.push(other.join().await.unwrap());
        }
        proxy.reset_counts();
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        // The watches are armed once their requests are answered; the proxy counts them earlier.
        let watches = if before == 1 { 2 } else { 1 };
        soon(async {
            while proxy.count(Op::GetData) < watches || place.watches().await < watches {
                place.outside().sync("/").await.unwrap();
            }
        })
        .await;
        holders.pop().unwrap().release().await.unwrap();
        for waiting in waiting {
            waiting.turn().await.unwrap().release().await.unwrap();
        }
        soon(waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
        let mut counted = requests(&proxy);
        if before == 2 && counted["GetData"] == 2 {
            // The machine was busy, and the hold was watched because it became old before its release.
            counted.insert("GetData".to_owned(), 1);
        }
        let lists = if before == 1 { 1 } else { 2 };
        assert_eq!(
            counted,
            expected([
                (Op::Create2, 1),
                (Op::GetChildren, lists),
                (Op::GetData, watches),
                (Op::Delete, 1)
            ]),
            "{before} before it"
        );
    }
}

async fn hand_over_costs_the_same_however_many_wait(place: Place) {
    for waiters in [10, 100, 1_000] {
        let (proxy, client) = place.proxied(LONG).await;
        let mut holder = Lock::new(&client, "/counts").acquire().await.unwrap();
        let mut places = Vec::new();
        for _ in 0..waiters {
            places.push(Lock::new(&client, "/counts").join().await.unwrap());
        }
        let mut turns = JoinSet::new();
        let mut next = VecDeque::new();
        for waiting in places {
            match next.len() < 3 {
                true => next.push_back(tokio::spawn(waiting.turn())),
                false => drop(turns.spawn(waiting.turn())),
            }
        }
        // Each of them watches the node before it. The session has one watch for each node.
        soon(async {
            while place.watches().await < waiters + 1 {
                place.outside().sync("/").await.unwrap();
            }
        })
        .await;
        // The first waiter is alone behind the holder. The others list the line: the node that was deleted may have waited too.
        for lists in [0, 1, 1] {
            proxy.reset_counts();
            holder.release().await.unwrap();
            holder = soon(next.pop_front().unwrap()).await.unwrap().unwrap();
            let mut sent = expected([(Op::Delete, 1), (Op::GetChildren, lists)]);
            sent.retain(|_, count| *count > 0);
            let mut now = requests(&proxy);
            // Waiters deep in the line begin to watch their own nodes after a second.
            now.remove("GetData");
            assert_eq!(now, sent, "{waiters} waiters");
            // For the next contender, and for a watch of the released node.
            assert!(proxy.events() <= 2, "{} events", proxy.events());
        }
        turns.abort_all();
        drop(next);
        holder.release().await.unwrap();
        soon(client.close()).await;
        place.until_children("/counts", 0).await;
    }
}

async fn simple_lock_wakes_the_herd(place: Place) {
    const WAITERS: usize = 20;
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let holder = SimpleLock::new(&place.client().await, "/counts")
        .acquire()
        .await
        .unwrap();
    let mut turns = JoinSet::new();
    for _ in 0..WAITERS {
        let client = place.client_through(&proxy, LONG).await;
        turns.spawn(async move { SimpleLock::new(&client, "/counts").acquire().await });
    }
    // All contenders watch, and the holder too.
    soon(async {
        while place.watches().await < WAITERS + 1 {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
    proxy.reset_counts();
    holder.release().await.unwrap();
    let next = soon(turns.join_next()).await.unwrap().unwrap().unwrap();
    soon(async {
        while place.watches().await < WAITERS {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
    // All have got the event and have tried; one acquired, and all watch again.
    assert_eq!((proxy.count(Op::Multi), proxy.events()), (WAITERS, WAITERS));
    assert!(proxy.count(Op::GetData) >= WAITERS);
    drop(next);
}
