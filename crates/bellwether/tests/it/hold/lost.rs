//! When a hold is lost, and how its holder learns it.

use std::time::{Duration, Instant};

use bellwether::blocking::Wait;
use bellwether::{Election, Error, ErrorKind, HoldState, Lock, Queue, connect};
use bellwether_server::Config;
use bellwether_testkit::{Cut, Direction, FaultProxy, TestServer};
use bellwether_wire::op::Op;
use futures_util::{StreamExt, stream};

use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    t24_wiped_directory_is_told_to_all,
    t25_deletion_by_another_hand_is_told_at_once,
    t35_second_acquire_of_a_held_lock_waits_without_spinning,
    t37_guard_is_released_on_another_thread,
    t38_blocking_task_does_not_stop_the_heartbeat,
    short_outage_is_a_suspension,
    warning_comes_before_the_loss,
    release_is_told_apart_from_a_loss,
    run_ends_with_the_work_or_with_the_hold,
    watches_of_a_claim_and_of_a_leadership_end_with_them,
}

async fn release_is_told_apart_from_a_loss(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, "/released");
    for is_dropped in [false, true] {
        let guard = lock.acquire().await.unwrap();
        let (watch, states) = (guard.watch(), guard.states());
        assert!(watch.is_held());
        assert_eq!(watch.token(), guard.token());
        let on_a_thread = std::thread::spawn({
            let watch = watch.clone();
            move || watch.lost().wait()
        });
        match is_dropped {
            true => drop(guard),
            false => guard.release().await.unwrap(),
        }
        soon(watch.lost()).await;
        on_a_thread.join().unwrap();
        assert_eq!(watch.state(), HoldState::Released);
        // They ended before this listener began, so only the last one is seen.
        assert_eq!(
            soon(states.collect::<Vec<_>>()).await,
            [HoldState::Released]
        );
    }
    let guard = lock.acquire().await.unwrap();
    let watch = guard.watch();
    let node = format!("/released/{}", guard.node());
    place.outside().delete(&node, None).await.unwrap();
    soon(watch.lost()).await;
    drop(guard);
    assert_eq!(watch.state(), HoldState::Lost, "lost, and then released");
}

async fn run_ends_with_the_work_or_with_the_hold(place: Place) {
    let client = place.client().await;
    let guard = Lock::new(&client, "/run").acquire().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await, Ok(7));
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let (in_work, is_dropped) = tokio::sync::oneshot::channel::<()>();
    let work = async {
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(in_work);
    };
    let deleted = async {
        is_begun.await.unwrap();
        let node = format!("/run/{}", guard.node());
        place.outside().delete(&node, None).await.unwrap();
    };
    let (lost, ()) = soon(async { tokio::join!(guard.run(work), deleted) }).await;
    assert_eq!(lost.unwrap_err().path, "/run");
    assert!(is_dropped.await.is_err(), "the work is still there");
    // A future does not start under a hold that is already lost.
    let begun = guard.run(async { panic!("it began") }).await;
    assert!(begun.is_err());
}

async fn watches_of_a_claim_and_of_a_leadership_end_with_them(place: Place) {
    let client = place.client().await;
    let queue = Queue::<Vec<u8>>::new(&client, "/claimed");
    queue.put(&b"item".to_vec()).await.unwrap();
    let claim = queue.take().await.unwrap();
    let watch = claim.watch();
    assert_eq!(claim.run(async { 7 }).await, Ok(7));
    claim.ack().await.unwrap();
    assert_eq!(watch.state(), HoldState::Released);

    let leader = Election::new(&client, "/led").campaign().await.unwrap();
    let watch = leader.watch();
    assert_eq!(leader.run(async { 7 }).await, Ok(7));
    leader.resign().await.unwrap();
    assert_eq!(watch.state(), HoldState::Released);
}

async fn t24_wiped_directory_is_told_to_all(place: Place) {
    let holder = Lock::new(&place.client().await, "/lost")
        .acquire()
        .await
        .unwrap();
    let mut waiters = Vec::new();
    for waiter in 0..3 {
        let lock = Lock::new(&place.client().await, "/lost");
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
        place.until_children("/lost", waiter + 2).await;
    }
    let mut wipe = place.outside().new_multi();
    for name in place.children("/lost").await {
        wipe.delete(&format!("/lost/{name}"), None);
    }
    wipe.delete("/lost", None);
    wipe.commit().await.unwrap();
    soon(holder.lost()).await;
    for waiter in waiters {
        match soon(waiter).await.unwrap() {
            // The first in line gets two events, of its turn and of its own deletion, in either order.
            Ok(guard) => soon(guard.lost()).await,
            Err(Error {
                kind: ErrorKind::Removed,
                ..
            }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn t25_deletion_by_another_hand_is_told_at_once(place: Place) {
    // A timeout so long that it cannot be the cause.
    let client = connect(format!("{}{}", place.server(), place.chroot()))
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    let guard = Lock::new(&client, "/lost").acquire().await.unwrap();
    let node = format!("/lost/{}", guard.node());
    place.outside().delete(&node, None).await.unwrap();
    soon(guard.lost()).await;
    assert_eq!(guard.state(), HoldState::Lost);
}

async fn t35_second_acquire_of_a_held_lock_waits_without_spinning(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    let lock = Lock::new(&client, "/lost");
    let guard = lock.acquire().await.unwrap();
    proxy.reset_counts();
    let again = lock.acquire_timeout(Duration::from_millis(1_500)).await;
    assert_fails!(again, ErrorKind::TimedOut { .. });
    // Create, list, two watches and a ping or two; the clean-up may have begun.
    let requests: usize = proxy.counts().values().sum();
    assert!(requests <= 10, "{:?}", proxy.counts());
    guard.release().await.unwrap();
}

async fn t37_guard_is_released_on_another_thread(place: Place) {
    let guard = Lock::new(&place.client().await, "/lost")
        .acquire()
        .await
        .unwrap();
    std::thread::spawn(move || guard.release().wait().unwrap())
        .join()
        .unwrap();
    assert!(place.children("/lost").await.is_empty());
}

#[expect(clippy::disallowed_methods, reason = "the user's mistake itself")]
async fn t38_blocking_task_does_not_stop_the_heartbeat(place: Place) {
    let address = format!("{}{}", place.server(), place.chroot());
    let client = connect(address)
        .session_timeout(Duration::from_millis(600))
        .await
        .unwrap();
    let guard = Lock::new(&client, "/lost").acquire().await.unwrap();
    // On the only thread of this runtime.
    std::thread::sleep(client.session_timeout() * 3);
    assert!(guard.is_held());
    assert_eq!(place.children("/lost").await, [guard.node()]);
    guard.release().await.unwrap();
}

async fn short_outage_is_a_suspension(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(5)).await;
    let guard = Lock::new(&client, "/lost").acquire().await.unwrap();
    let mut states = guard.states();
    assert_eq!(soon(states.next()).await, Some(HoldState::Held));
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    assert_eq!(soon(states.next()).await, Some(HoldState::Suspended));
    assert!(guard.is_held());
    proxy.refuse(false);
    assert_eq!(soon(states.next()).await, Some(HoldState::Held));
    let node = format!("/lost/{}", guard.node());
    place.outside().delete(&node, None).await.unwrap();
    assert_eq!(soon(states.next()).await, Some(HoldState::Lost));
    assert_eq!(soon(states.next()).await, None);
}

async fn warning_comes_before_the_loss(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let guard = Lock::new(&client, "/lost").acquire().await.unwrap();
    let ahead = SESSION_TIMEOUT / 3;
    assert!(guard.time_left() > ahead);
    proxy.hold(Direction::Both);
    soon(guard.expiring(ahead)).await;
    assert!(guard.is_held(), "the warning was no earlier than the loss");
    assert!(guard.time_left() <= ahead);
    soon(guard.lost()).await;
    assert_eq!(place.children("/lost").await.len(), 1, "still kept for us");
}

/// A restarted server may grant a shorter timeout than before, and the hold is valid only that long.
#[tokio::test(flavor = "multi_thread")]
async fn hold_is_lost_in_time_after_a_reattach_with_a_shorter_timeout() {
    let mut server = TestServer::start().await.unwrap();
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let opened = connect(proxy.connect_string()).session_timeout(SESSION_TIMEOUT * 3);
    let client = opened.await.unwrap();
    let guard = Lock::new(&client, "/lost").acquire().await.unwrap();
    kill(&proxy).await;
    let lower = |config: &mut Config| config.session_timeout_max = Some(SESSION_TIMEOUT);
    server.restart_with(lower).await.unwrap();
    let next = connect(server.connect_string()).await.unwrap();
    proxy.refuse(false);
    soon(async {
        while client.session_timeout() != SESSION_TIMEOUT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(guard.is_held(), "it was taken up again in time");

    kill(&proxy).await;
    let granted = tokio::spawn(async move {
        let guard = Lock::new(&next, "/lost").acquire().await.unwrap();
        (Instant::now(), guard)
    });
    soon(guard.lost()).await;
    let lost = Instant::now();
    let (granted, _next) = soon(granted).await.unwrap();
    assert!(lost < granted, "lost {:?} late", lost - granted);
}

/// More watched paths than fit into one request that re-arms them.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_holds_outlive_a_reset() {
    const HOLDS: usize = 2_500;
    let server = TestServer::start().await.unwrap();
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let client = connect(proxy.connect_string())
        .session_timeout(Duration::from_secs(60))
        .await
        .unwrap();
    let acquired = (0..HOLDS).map(|index| {
        let lock = Lock::new(&client, format!("/lost/of-thousands/{index:04}"));
        async move { lock.acquire().await.unwrap() }
    });
    let guards: Vec<_> = stream::iter(acquired).buffered(100).collect().await;
    let until_all_watched = async || {
        soon(async {
            while server.watch_count().unwrap() < HOLDS {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    until_all_watched().await;

    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    soon(async {
        while server.watch_count().unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    proxy.reset_counts();
    proxy.refuse(false);
    until_all_watched().await;
    let frames = proxy.count(Op::SetWatches) + proxy.count(Op::SetWatches2);
    assert!(frames > 1, "all paths fit one request");
    assert_eq!(proxy.connections(), 1, "one reconnect is enough");

    // Each is still watched: three are deleted from outside, and only these are lost.
    let removed = [0, HOLDS / 2, HOLDS - 1];
    for index in removed {
        let node = format!("{}/{}", guards[index].path(), guards[index].node());
        client.raw().delete(&node, None).await.unwrap();
        soon(guards[index].lost()).await;
    }
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, HOLDS - removed.len());
}
