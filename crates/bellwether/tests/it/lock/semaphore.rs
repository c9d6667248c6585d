//! The semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bellwether::error::OtherUse;
use bellwether::{Client, Error, ErrorKind, Lock, Permit, Semaphore, SessionId, blocking::Wait};
use bellwether_testkit::{Direction, FaultProxy, Op};
use tokio::task::JoinHandle;

use crate::support::dropping::{drop_when_woken, requests, until_request};
use crate::support::place::{Place, soon};

on_both_engines! {
    t61_no_fault_or_cancel_leaves_an_orphan,
    t62_raised_limit_lets_waiters_in,
    t63_holders_are_never_more_than_the_limit,
    t64_any_release_lets_the_first_waiter_in,
    lowered_limit_evicts_nobody_and_counts_for_the_next,
    waiter_that_came_after_a_lowering_is_let_in_by_any_release,
    lowered_limit_counts_for_one_who_was_cut_off,
    try_after_a_drop_finds_the_permit_free,
    heavy_contender_is_not_overtaken,
    waiter_that_leaves_holds_nobody_up,
    tries_take_only_what_is_free,
    limit_is_kept_by_the_server,
    limit_survives_a_lost_reply,
    directory_without_a_number_is_refused,
    uncontended_permit_is_one_round_trip,
    release_wakes_one,
    semaphore_works_without_async,
}

const PATH: &str = "/limits/downloads";

async fn semaphore(place: &Place, limit: u32) -> Semaphore {
    Semaphore::new(&place.client().await, PATH, limit)
}

/// A contender that waits.
struct Waiter {
    session: SessionId,
    acquiring: JoinHandle<Result<Permit, Error>>,
}

impl Waiter {
    async fn permit(self) -> Permit {
        soon(self.acquiring).await.unwrap().unwrap()
    }

    /// Waits until the contender waits for a change of the node at `path`. The first contender in line watches the line and its limit; each
    /// other one watches its predecessor.
    async fn until_waits_for(&self, place: &Place, path: &str) {
        place
            .until_waits_for(&[path], self.session, &self.acquiring)
            .await;
    }
}

/// A contender that waits, as the last of `line` nodes in the line.
async fn waiting(place: &Place, permits: u32, line: usize) -> Waiter {
    let client = place.client().await;
    let semaphore = Semaphore::new(&client, PATH, 1);
    let acquiring = tokio::spawn(async move { semaphore.acquire_many(permits).await });
    place.until_children(PATH, line).await;
    Waiter {
        session: client.session_id(),
        acquiring,
    }
}

/// Waits until a contender behind a proxy has sent `times` requests of a kind and has handled their replies.
async fn until_asked(proxy: &FaultProxy, client: &Client, op: Op, times: usize) {
    soon(async {
        while proxy.count(op) < times {
            client.raw().sync("/").await.unwrap();
        }
        client.raw().sync("/").await.unwrap();
    })
    .await;
}

async fn t61_no_fault_or_cancel_leaves_an_orphan(place: Place) {
    let holder = semaphore(&place, 1).await.acquire().await.unwrap();
    let (proxy, client) = place.counted().await;
    let semaphore = Semaphore::new(&client, PATH, 1);
    proxy.reset_counts();
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    // The holder watches its node, and the waiter the limit.
    soon(async { while place.watches().await < 2 {} }).await;
    // Answered after everything that the waiter has sent.
    client.raw().exists("/").await.unwrap();
    let to_wait = requests(&proxy) - 1;
    waiter.abort();
    // Dropped after each of its requests.
    proxy.delay(Direction::ToClient, Duration::from_millis(10));
    for count in 1..=to_wait {
        place.until_children(PATH, 1).await;
        let permit = soon(until_request(&proxy, count, semaphore.acquire())).await;
        assert!(permit.is_none(), "{permit:?} beside the holder");
    }
    place.until_children(PATH, 1).await;
    holder.release().await.unwrap();
    // Everything is answered, but the caller has dropped the future.
    drop_when_woken(&proxy, semaphore.acquire()).await;
    place.until_children(PATH, 0).await;

    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let client = bellwether::connect(format!("{}{}", proxy.connect_string(), place.chroot()))
        .session_timeout(Duration::from_secs(10))
        .await
        .unwrap();
    let semaphore = Semaphore::new(&client, PATH, 1);
    for op in [Op::Create2, Op::GetChildren, Op::Delete] {
        for is_lost_on_the_way_back in [true, false] {
            let fault = match is_lost_on_the_way_back {
                true => proxy.swallow_reply(op),
                false => proxy.drop_request(op),
            };
            let permit = soon(semaphore.acquire()).await.unwrap();
            assert_eq!(place.children(PATH).await.len(), 1, "{op:?}");
            permit.release().await.unwrap();
            fault.happened().await.unwrap();
            assert!(place.children(PATH).await.is_empty(), "{op:?}");
        }
    }
}

async fn t62_raised_limit_lets_waiters_in(place: Place) {
    let first = semaphore(&place, 1).await;
    let held = first.acquire().await.unwrap();
    let waiters = [
        waiting(&place, 1, 2).await,
        waiting(&place, 1, 3).await,
        waiting(&place, 1, 4).await,
    ];
    first.set_limit(4).await.unwrap();
    for waiter in waiters {
        waiter.permit().await.release().await.unwrap();
    }
    held.release().await.unwrap();
}

async fn t63_holders_are_never_more_than_the_limit(place: Place) {
    const LIMIT: u32 = 3;
    let in_use = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for task in 0..8 {
        let (semaphore, in_use) = (semaphore(&place, LIMIT).await, in_use.clone());
        tasks.push(tokio::spawn(async move {
            for turn in 0..12 {
                let permits = (task + turn) % 3 + 1;
                let permit = semaphore.acquire_many(permits).await.unwrap();
                let before = in_use.fetch_add(permits, Ordering::SeqCst);
                assert!(before + permits <= LIMIT, "{} in use", before + permits);
                tokio::task::yield_now().await;
                in_use.fetch_sub(permits, Ordering::SeqCst);
                permit.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert!(place.children(PATH).await.is_empty());
}

async fn t64_any_release_lets_the_first_waiter_in(place: Place) {
    for released in 0..3 {
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(semaphore(&place, 3).await.acquire().await.unwrap());
        }
        let first = waiting(&place, 1, 4).await;
        let second = waiting(&place, 1, 5).await;
        held.remove(released).release().await.unwrap();
        let first = first.permit().await;
        // It is first in line now, and no permit is left for it.
        second.until_waits_for(&place, PATH).await;
        held.remove(0).release().await.unwrap();
        let second = second.permit().await;
        for permit in held.into_iter().chain([first, second]) {
            permit.release().await.unwrap();
        }
    }
}

async fn lowered_limit_evicts_nobody_and_counts_for_the_next(place: Place) {
    let semaphore = semaphore(&place, 2).await;
    let held = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let (proxy, client) = place.counted().await;
    let waiting = Semaphore::new(&client, PATH, 2);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    place.until_children(PATH, 3).await;
    // The second list, right after the limit, is the one with watches.
    until_asked(&proxy, &client, Op::GetChildren, 2).await;
    proxy.reset_counts();
    semaphore.set_limit(1).await.unwrap();
    until_asked(&proxy, &client, Op::GetChildren, 1).await;
    assert!(held.iter().all(|permit| permit.is_held()));
    let [one, other] = held;
    proxy.reset_counts();
    one.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    // The release wakes the waiter, which keeps waiting.
    until_asked(&proxy, &client, Op::GetChildren, 1).await;
    assert!(!waiter.is_finished(), "two beside a limit of one");
    other.release().await.unwrap();
    let permit = soon(waiter).await.unwrap().unwrap();
    permit.release().await.unwrap();
}

async fn waiter_that_came_after_a_lowering_is_let_in_by_any_release(place: Place) {
    let semaphore = semaphore(&place, 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(semaphore.acquire().await.unwrap());
    }
    semaphore.set_limit(2).await.unwrap();
    // The last holder looks like a waiter to it.
    let waiter = waiting(&place, 1, 4).await;
    held.remove(0).release().await.unwrap();
    held.remove(0).release().await.unwrap();
    waiter.permit().await.release().await.unwrap();
    held.remove(0).release().await.unwrap();
}

async fn lowered_limit_counts_for_one_who_was_cut_off(place: Place) {
    let semaphore = semaphore(&place, 2).await;
    // Which of two events is seen first is random.
    for _ in 0..10 {
        semaphore.set_limit(2).await.unwrap();
        let one = semaphore.acquire().await.unwrap();
        let other = semaphore.acquire().await.unwrap();
        let (proxy, client) = place.counted().await;
        let waiting = Semaphore::new(&client, PATH, 2);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        // The second list, right after the limit, is the one with watches.
        until_asked(&proxy, &client, Op::GetChildren, 2).await;
        proxy.hold(Direction::ToClient);
        semaphore.set_limit(1).await.unwrap();
        one.release().await.unwrap();
        proxy.reset_counts();
        proxy.resume(Direction::ToClient);
        // It reads the new limit, and keeps waiting.
        until_asked(&proxy, &client, Op::GetData, 1).await;
        assert!(!waiter.is_finished(), "two beside a limit of one");
        other.release().await.unwrap();
        let permit = soon(waiter).await.unwrap().unwrap();
        permit.release().await.unwrap();
    }
}

async fn try_after_a_drop_finds_the_permit_free(place: Place) {
    let client = place.client().await;
    let semaphore = Semaphore::new(&client, PATH, 1);
    let permit = semaphore.acquire().await.unwrap();
    let mut holds = Vec::new();
    for number in 0..50 {
        let lock = Lock::new(&client, format!("/locks/{number}"));
        holds.push(lock.acquire().await.unwrap());
    }
    // So many deletes are queued before that of its node that the node would still be there.
    drop(holds);
    drop(permit);
    let again = semaphore.try_acquire().await.unwrap();
    again.expect("it is free").release().await.unwrap();
}

async fn heavy_contender_is_not_overtaken(place: Place) {
    let semaphore = semaphore(&place, 3).await;
    let held = semaphore.acquire().await.unwrap();
    let heavy = waiting(&place, 3, 2).await;
    let light = waiting(&place, 1, 3).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let names = place.children(PATH).await;
    let before = names.iter().find(|name| name.starts_with("permit3-"));
    let before = format!("{PATH}/{}", before.unwrap());
    light.until_waits_for(&place, &before).await;
    held.release().await.unwrap();
    let heavy = heavy.permit().await;
    assert_eq!(heavy.permits(), 3);
    light.until_waits_for(&place, PATH).await;
    heavy.release().await.unwrap();
    light.permit().await.release().await.unwrap();
}

async fn waiter_that_leaves_holds_nobody_up(place: Place) {
    let held = semaphore(&place, 2).await.acquire().await.unwrap();
    let heavy = waiting(&place, 2, 2).await;
    let light = waiting(&place, 1, 3).await;
    heavy.acquiring.abort();
    light.permit().await.release().await.unwrap();
    held.release().await.unwrap();
}

async fn tries_take_only_what_is_free(place: Place) {
    let semaphore = semaphore(&place, 2).await;
    let permit = semaphore
        .try_acquire_many(2)
        .await
        .unwrap()
        .expect("two free");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let late = semaphore.acquire_timeout(Duration::from_millis(50)).await;
    assert_fails!(late, ErrorKind::TimedOut { .. });
    place.until_children(PATH, 1).await;
    permit.release().await.unwrap();
}

async fn limit_is_kept_by_the_server(place: Place) {
    let one = semaphore(&place, 3).await;
    assert_eq!(one.limit().await.unwrap(), 3, "the first limit");
    one.set_limit(5).await.unwrap();
    let other = semaphore(&place, 1).await;
    assert_eq!(other.limit().await.unwrap(), 5);
    other
        .acquire_many(5)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let data = place.outside().get(PATH).await.unwrap().0;
    assert_eq!(&data[..], b"5");
}

async fn limit_survives_a_lost_reply(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(5)).await;
    let semaphore = Semaphore::new(&client, PATH, 1);
    soon(semaphore.set_limit(1)).await.unwrap();
    for limit in [2, 3] {
        let fault = proxy.swallow_reply_where(|request| request.op == Op::SetData);
        soon(semaphore.set_limit(limit)).await.unwrap();
        soon(fault.happened()).await.unwrap();
        let fault = proxy.swallow_reply_where(|request| request.op == Op::GetData);
        assert_eq!(soon(semaphore.limit()).await.unwrap(), limit);
        soon(fault.happened()).await.unwrap();
    }
}

async fn directory_without_a_number_is_refused(place: Place) {
    let semaphore = semaphore(&place, 1).await;
    semaphore.set_limit(1).await.unwrap();
    place.outside().set(PATH, b"many", None).await.unwrap();
    let refused = semaphore.acquire().await;
    assert_fails!(refused, ErrorKind::InUse(OtherUse::NoLimit));
    let refused = semaphore.limit().await;
    assert_fails!(refused, ErrorKind::InUse(OtherUse::NoLimit));
    place.until_children(PATH, 0).await;
}

async fn uncontended_permit_is_one_round_trip(place: Place) {
    let (proxy, client) = place.counted().await;
    let semaphore = Semaphore::new(&client, PATH, 2);
    // Creates the directory, and leaves nothing to be requested later.
    semaphore.set_limit(2).await.unwrap();
    proxy.reset_counts();
    // Requests sent before the first reply take one round trip.
    proxy.hold(Direction::ToClient);
    let acquire = tokio::spawn(async move { semaphore.acquire().await });
    place.until_children(PATH, 1).await;
    let sent = soon(async {
        loop {
            let counts = proxy.counts();
            if counts.values().sum::<usize>() == 3 {
                return counts;
            }
            place.outside().exists("/").await.unwrap();
        }
    })
    .await;
    proxy.resume(Direction::ToClient);
    let permit = soon(acquire).await.unwrap().unwrap();
    assert_eq!(proxy.counts(), sent, "nothing more was asked");
    permit.release().await.unwrap();
}

async fn release_wakes_one(place: Place) {
    let first = semaphore(&place, 1).await.acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..4 {
        let (proxy, client) = place.counted().await;
        let semaphore = Semaphore::new(&client, PATH, 1);
        let waiter = tokio::spawn(async move { semaphore.acquire().await });
        place.until_children(PATH, number + 2).await;
        waiters.push((proxy, waiter));
    }
    soon(async {
        // Until all of them watch.
        while waiters
            .iter()
            .any(|(proxy, _)| proxy.count(Op::GetData) < 2)
        {
            place.outside().exists("/").await.unwrap();
        }
    })
    .await;
    for (proxy, _) in &waiters {
        proxy.reset_counts();
    }
    first.release().await.unwrap();
    let mut waiters = waiters.into_iter();
    let (_proxy, first) = waiters.next().unwrap();
    let permit = soon(first).await.unwrap().unwrap();
    // Only the next contender is notified that it is first now.
    let (proxies, waiters): (Vec<_>, Vec<_>) = waiters.unzip();
    for proxy in &proxies[1..] {
        assert_eq!(proxy.events(), 0);
    }
    permit.release().await.unwrap();
    for waiter in waiters {
        soon(waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

async fn semaphore_works_without_async(place: Place) {
    let semaphore = semaphore(&place, 1).await;
    let worker = std::thread::spawn(move || {
        semaphore
            .acquire()
            .wait()
            .unwrap()
            .release()
            .wait()
            .unwrap();
    });
    tokio::task::spawn_blocking(|| worker.join().unwrap())
        .await
        .unwrap();
}
