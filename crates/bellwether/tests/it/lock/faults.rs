//! The fair lock when the connection fails.

use std::time::Duration;

use bellwether::{Client, Error, ErrorKind, Lock, connect, zk};
use bellwether_testkit::history::Moment;
use bellwether_testkit::{Cut, Direction, FaultProxy, Op, TestServer};

use crate::support::place::{Place, note_requests, soon};

on_both_engines! {
    t01_lost_before_the_server_can_grant_the_next,
    short_outage_loses_nothing,
    t03_waiter_whose_session_ends_gets_no_guard,
    t05_create_reply_lost_leaves_one_node,
    t05_create_that_arrives_after_its_retry_does_not_outlive_the_hold,
    t05_create_that_arrives_after_the_release_is_deleted,
    t05_server_that_may_lag_is_asked_to_catch_up_first,
    t06_create_in_doubt_that_is_given_up_leaves_no_node,
    t07_delete_that_did_not_arrive_is_sent_again,
    t10_release_over_a_lost_reply_is_done_once,
}

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// A session whose connection goes through a proxy, and a lock whose directory exists.
async fn behind_a_proxy(place: &Place) -> (FaultProxy, Client, Lock) {
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let client = through(&proxy, place).await;
    let lock = Lock::new(&client, "/faults");
    lock.acquire().await.unwrap().release().await.unwrap();
    (proxy, client, lock)
}

/// A session whose connection goes through a proxy.
async fn through(proxy: &FaultProxy, place: &Place) -> Client {
    let address = format!("{}{}", proxy.address(), place.chroot());
    let session = connect(address).session_timeout(SESSION_TIMEOUT);
    session.await.unwrap()
}

/// Held bytes are lost with their connections, and the next connection works.
async fn lose_what_is_held(proxy: &FaultProxy) {
    proxy.cut(Cut::Close).await;
    proxy.calm();
}

async fn t01_lost_before_the_server_can_grant_the_next(place: Place) {
    let ways = [Direction::ToServer, Direction::ToClient, Direction::Both];
    for held in ways.map(Some).into_iter().chain([None]) {
        let (proxy, _client, lock) = behind_a_proxy(&place).await;
        let guard = lock.acquire().await.unwrap();
        let next = Lock::new(&place.client().await, "/faults");
        let next = tokio::spawn(async move { (next.acquire().await, Moment::now()) });
        place.until_children("/faults", 2).await;
        match held {
            Some(direction) => proxy.hold(direction),
            None => {
                proxy.refuse(true);
                proxy.cut(Cut::Close).await;
            }
        }
        soon(guard.lost()).await;
        let lost = Moment::now();
        let (next, granted) = soon(next).await.unwrap();
        assert!(lost < granted, "{held:?}: two held for a time");
        next.unwrap().release().await.unwrap();
        proxy.calm();
        drop(guard);
        place.until_children("/faults", 0).await;
    }
}

async fn short_outage_loses_nothing(place: Place) {
    let (proxy, _client, lock) = behind_a_proxy(&place).await;
    let guard = lock.acquire().await.unwrap();
    for how in [Cut::Close, Cut::Reset, Cut::Close] {
        proxy.cut(how).await;
        // The request waits in the client for the next connection.
        assert!(soon(lock.try_acquire()).await.unwrap().is_none());
        assert!(guard.is_held());
    }
    guard.release().await.unwrap();
}

async fn t03_waiter_whose_session_ends_gets_no_guard(place: Place) {
    let holder = Lock::new(&place.client().await, "/faults")
        .acquire()
        .await
        .unwrap();
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let client = through(&proxy, &place).await;
    let waiter = tokio::spawn(async move { Lock::new(&client, "/faults").acquire().await });
    place.until_children("/faults", 2).await;
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    place.until_children("/faults", 1).await;
    holder.release().await.unwrap();
    proxy.calm();
    let waited = soon(waiter).await.unwrap();
    assert_fails!(waited, ErrorKind::SessionEnded);
}

async fn t05_create_reply_lost_leaves_one_node(place: Place) {
    let (proxy, _client, lock) = behind_a_proxy(&place).await;
    proxy.hold(Direction::ToClient);
    let acquired = tokio::spawn(async move { lock.acquire().await });
    place.until_children("/faults", 1).await;
    let node = place.children("/faults").await;
    lose_what_is_held(&proxy).await;
    let guard = soon(acquired).await.unwrap().unwrap();
    assert_eq!(place.children("/faults").await, node);
    let stat = place
        .outside()
        .exists(&format!("/faults/{}", node[0]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(guard.token().number(), stat.czxid);
    guard.release().await.unwrap();
}

/// A slow member of an ensemble may forward a create when its client has sent another one.
async fn t05_create_that_arrives_after_its_retry_does_not_outlive_the_hold(place: Place) {
    let (proxy, client, lock) = behind_a_proxy(&place).await;
    proxy.hold(Direction::ToClient);
    let acquired = tokio::spawn(async move { lock.acquire().await });
    place.until_children("/faults", 1).await;
    lose_what_is_held(&proxy).await;
    let guard = soon(acquired).await.unwrap().unwrap();
    create_again(&client, guard.node()).await;
    place.until_children("/faults", 2).await;
    guard.release().await.unwrap();
    place.until_children("/faults", 0).await;
}

async fn t05_create_that_arrives_after_the_release_is_deleted(place: Place) {
    let (proxy, client, lock) = behind_a_proxy(&place).await;
    let lost = proxy.swallow_reply(Op::Create2);
    let guard = soon(lock.acquire()).await.unwrap();
    lost.happened().await.unwrap();
    let node = guard.node().to_owned();
    guard.release().await.unwrap();
    place.until_children("/faults", 0).await;
    create_again(&client, &node).await;
    // It would block the line as long as its session lives.
    let next = Lock::new(&place.client().await, "/faults");
    soon(next.acquire()).await.unwrap().release().await.unwrap();
    assert!(!client.raw().state().is_ended());
    place.until_children("/faults", 0).await;
}

/// Makes another node of the acquisition that has made this one, as a create does that a server forwards late.
async fn create_again(client: &Client, node: &str) {
    let (prefix, _sequence) = node.rsplit_once('-').unwrap();
    let late = zk::CreateMode::EphemeralSequential;
    let path = format!("/faults/{prefix}-");
    client.raw().create(&path, b"", late).await.unwrap();
}

async fn t05_server_that_may_lag_is_asked_to_catch_up_first(place: Place) {
    let (proxy, _client, lock) = behind_a_proxy(&place).await;
    let asked = note_requests(&proxy, |path| path.ends_with("/faults"));
    let lost = proxy.swallow_reply(Op::Create2);
    let guard = soon(lock.acquire()).await.unwrap();
    lost.happened().await.unwrap();
    let asked = asked.lock().unwrap().clone();
    // Behind the list of the lost packet, and ahead of the cleaner, which looks for a late node.
    assert!(
        asked[1..].starts_with(&[Op::Sync, Op::GetChildren]),
        "{asked:?}"
    );
    guard.release().await.unwrap();
}

async fn t06_create_in_doubt_that_is_given_up_leaves_no_node(place: Place) {
    let (proxy, _client, lock) = behind_a_proxy(&place).await;
    proxy.hold(Direction::ToClient);
    let acquired = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    place.until_children("/faults", 1).await;
    acquired.abort();
    assert!(acquired.await.unwrap_err().is_cancelled());
    lose_what_is_held(&proxy).await;
    place.until_children("/faults", 0).await;
    // In the same session: the node was not just deleted with it.
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

async fn t07_delete_that_did_not_arrive_is_sent_again(place: Place) {
    let (proxy, _client, lock) = behind_a_proxy(&place).await;
    let guard = lock.acquire().await.unwrap();
    let lost = proxy.drop_request(Op::Delete);
    drop(guard);
    lost.happened().await.unwrap();
    place.until_children("/faults", 0).await;
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

async fn t10_release_over_a_lost_reply_is_done_once(place: Place) {
    let (proxy, _client, lock) = behind_a_proxy(&place).await;
    let guard = lock.acquire().await.unwrap();
    proxy.hold(Direction::ToClient);
    let released = tokio::spawn(guard.release());
    place.until_children("/faults", 0).await;
    lose_what_is_held(&proxy).await;
    soon(released).await.unwrap().unwrap();
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn expired_session_is_told_to_the_holder_and_the_next_call_has_another() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let lock = Lock::new(&client, "/expired");
    let guard = lock.acquire().await.unwrap();
    server.expire_session(client.session_id().number()).unwrap();
    soon(guard.lost()).await;
    assert!(matches!(
        guard.release().await,
        Err(Error {
            kind: ErrorKind::LostWithSession,
            ..
        })
    ));
    let next = soon(lock.acquire()).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn t13_sequence_near_its_end_is_refused() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let lock = Lock::new(&client, "/full");
    lock.acquire().await.unwrap().release().await.unwrap();
    for counter in [i32::MAX - 1_000_000, i32::MAX, i32::MIN, -1] {
        server.set_child_counter("/full", counter).await.unwrap();
        let refused = soon(lock.acquire()).await;
        assert!(
            matches!(
                refused,
                Err(Error {
                    kind: ErrorKind::SequenceUsedUp,
                    ..
                })
            ),
            "{counter}: {refused:?}"
        );
    }
    server
        .set_child_counter("/full", i32::MAX - 1_000_001)
        .await
        .unwrap();
    // Refused attempts have left no node behind that would block the line.
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

/// Such a reply does not say whether the node is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn node_is_deleted_again_after_an_error_that_nobody_knows() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    let guard = Lock::new(&client, "/faults").acquire().await.unwrap();
    place.until_children("/faults", 1).await;
    let answered = proxy.answer_with(-9_999, |request| request.op == Op::Delete);
    drop(guard);
    answered.happened().await.unwrap();
    place.until_children("/faults", 0).await;
    assert_eq!(proxy.connections(), 1);
}
