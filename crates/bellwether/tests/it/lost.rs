//! When a hold ends, and who is told.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellwether::blocking::Wait;
use bellwether::{AcquireError, Connect, Fence, HoldState, Lock, Sabotage, connect};
use bellwether_server::Config;
use bellwether_server::proto::op::Op;
use bellwether_testkit::{Cut, Direction, FaultProxy, TestServer};
use futures_util::{StreamExt, stream};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::{TcpListener, TcpStream};

use crate::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    t02_paused_holder_is_fenced_off,
    t24_wiped_directory_is_told_to_all,
    t25_deletion_by_another_hand_is_told_at_once,
    t35_second_acquire_of_a_held_lock_waits_without_spinning,
    t37_guard_is_released_on_another_thread,
    t38_blocking_task_does_not_stop_the_heartbeat,
    t39_acquire_on_an_ended_session_is_an_error,
    those_who_wait_for_the_next_session_share_an_attempt,
    short_outage_is_a_suspension,
    warning_comes_before_the_loss,
}

/// The process of [`t02_paused_holder_is_fenced_off`]: acquires, tells its token, and tells it again when asked to write.
#[test]
#[ignore = "started by t02 as a process of its own"]
fn paused_holder() {
    let address = std::env::var("BELLWETHER_TEST_HOLDER").unwrap();
    let client = connect(address)
        .session_timeout(SESSION_TIMEOUT)
        .wait()
        .unwrap();
    let guard = Lock::new(&client, "/lost").acquire().wait().unwrap();
    eprintln!("token {}", guard.token());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    eprintln!("write {} {}", guard.token(), guard.is_held());
}

async fn t02_paused_holder_is_fenced_off(place: Place) {
    let address = format!("{}{}", place.server(), place.chroot());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lost::paused_holder", "--ignored", "--nocapture"])
        .env("BELLWETHER_TEST_HOLDER", address)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut hear = |what: &str| {
        let line = said.find(|line| line.as_ref().unwrap().starts_with(what));
        line.unwrap().unwrap()
    };
    let store = Fence::new();
    let first: i64 = hear("token")[6..].parse().unwrap();
    store.admit(first).unwrap();

    kill_process(pid, Signal::STOP).unwrap();
    let next = soon(Lock::new(&place.client().await, "/lost").acquire())
        .await
        .unwrap();
    assert!(next.token() > first);
    store.admit(next.token()).unwrap();

    // It wakes and goes on where it was.
    kill_process(pid, Signal::CONT).unwrap();
    child.stdin.take().unwrap().write_all(b"write\n").unwrap();
    let late = hear("write");
    assert_eq!(
        late,
        format!("write {first} false"),
        "it can know when it wakes"
    );
    assert!(
        store.admit(first).is_err(),
        "the store accepted a late write"
    );
    assert!(child.wait().unwrap().success());
    next.release().await.unwrap();
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
            // The first in line is told twice, of its turn and of its own end, and may hear the one before the other.
            Ok(guard) => soon(guard.lost()).await,
            Err(AcquireError::Removed { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn t25_deletion_by_another_hand_is_told_at_once(place: Place) {
    // A timeout that cannot be what tells.
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
    assert!(
        matches!(again, Err(AcquireError::TimedOut { .. })),
        "{again:?}"
    );
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

async fn t39_acquire_on_an_ended_session_is_an_error(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_millis(600)).await;
    let lock = Lock::new(&client, "/lost");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    soon(client.ended()).await;
    let refused = soon(lock.acquire()).await;
    assert!(
        matches!(refused, Err(AcquireError::SessionEnded { .. })),
        "{refused:?}"
    );
    // The next session does better.
    proxy.refuse(false);
    let next = soon(client.successor()).await.unwrap();
    assert_ne!(next.session_id(), client.session_id());
    let also = soon(client.successor()).await.unwrap();
    assert_eq!(next.session_id(), also.session_id(), "one for all who ask");
    let guard = soon(Lock::new(&next, "/lost").acquire()).await.unwrap();
    guard.release().await.unwrap();
}

/// How many connections to a listener wait to be accepted. They are let go.
async fn waiting_at(listener: &TcpListener) -> usize {
    // The last one is our own.
    let last = TcpStream::connect(listener.local_addr().unwrap());
    let last = last.await.unwrap().local_addr().unwrap();
    let mut waiting = 0;
    while listener.accept().await.unwrap().1 != last {
        waiting += 1;
    }
    waiting
}

async fn those_who_wait_for_the_next_session_share_an_attempt(place: Place) {
    // Of two servers one never answers, and there the attempts are counted.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let (one, other) = (proxy.address(), silent.local_addr().unwrap());
    let client = connect(format!("{one},{other}{}", place.chroot()))
        .session_timeout(SESSION_TIMEOUT)
        .fail_fast()
        .await
        .unwrap();
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    soon(client.ended()).await;
    waiting_at(&silent).await;
    let failed = soon(async { tokio::join!(client.successor(), client.successor()) }).await;
    assert!(matches!(failed, (Err(_), Err(_))), "{failed:?}");
    assert_eq!(waiting_at(&silent).await, 1);
    // The next who asks makes another.
    proxy.refuse(false);
    let opened = soon(async { tokio::join!(client.successor(), client.successor()) }).await;
    let (one, other) = (opened.0.unwrap(), opened.1.unwrap());
    assert_eq!(one.session_id(), other.session_id());
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

/// A restarted server may grant less than before, and the hold is good for that long.
#[tokio::test(flavor = "multi_thread")]
async fn hold_is_lost_in_time_after_a_reattach_with_a_shorter_timeout() {
    let (lost, granted) = lost_after_a_shorter_timeout(|connect| connect).await;
    assert!(lost < granted, "lost {:?} late", lost - granted);
    // As one would be that counts by the timeout of the opening.
    let mistaken = |connect: Connect| connect.sabotage(Sabotage::TimeoutOnce);
    let (lost, granted) = lost_after_a_shorter_timeout(mistaken).await;
    assert!(lost > granted, "the mistake went unnoticed");
}

/// When a hold was lost after its session was taken up again with a shorter timeout, and when the next one was granted.
async fn lost_after_a_shorter_timeout(options: impl Fn(Connect) -> Connect) -> (Instant, Instant) {
    let mut server = TestServer::start().await.unwrap();
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let opened = connect(proxy.connect_string()).session_timeout(SESSION_TIMEOUT * 3);
    let client = options(opened).await.unwrap();
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
    (lost, granted)
}

/// More watched paths than fit one request to arm them again.
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

    // Each is still watched: one at each end and one in the middle is deleted by another hand, and only these are lost.
    let removed = [0, HOLDS / 2, HOLDS - 1];
    for index in removed {
        let node = format!("{}/{}", guards[index].path(), guards[index].node());
        client.raw().delete(&node, None).await.unwrap();
        soon(guards[index].lost()).await;
    }
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, HOLDS - removed.len());
}
