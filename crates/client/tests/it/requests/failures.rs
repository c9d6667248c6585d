//! The four kinds of failure: refused, not sent, unknown, session ended.

use std::time::Duration;

use bellwether_client::{CreateMode, Error, SessionEnd, WatchMode};
use bellwether_testkit::{Cut, Direction, Op};

use crate::support::place::{Place, SESSION_TIMEOUT, soon, until_connections, until_down};
use crate::support::tap::Tap;

on_both_engines! {
    a_lost_reply_makes_the_outcome_unknown,
    a_request_lost_on_its_way_is_unknown_too,
    a_request_that_the_socket_did_not_take_was_not_sent,
    requests_without_a_connection_wait_for_one,
    an_expired_session_ends_requests_and_watches,
    a_silent_connection_is_given_up_by_an_idle_session,
    a_silent_connection_is_given_up_by_a_busy_session,
    one_slow_request_does_not_hang_past_its_timeout,
    a_request_timeout_holds_without_a_connection,
}

async fn a_lost_reply_makes_the_outcome_unknown(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT * 5).await;
    let lost = proxy.swallow_reply(Op::Create2);
    let created = client.create("/n", b"", CreateMode::Persistent);
    assert_eq!(soon(created).await, Err(Error::Unknown));
    lost.happened().await.unwrap();
    assert!(client.exists("/n").await.unwrap().is_some());
}

async fn a_request_lost_on_its_way_is_unknown_too(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT * 5).await;
    let lost = proxy.drop_request(Op::Create2);
    let behind = client.batch(|client| {
        let created = client.create("/n", b"", CreateMode::Persistent);
        (created, client.exists("/"))
    });
    // This client cannot know how far it got.
    assert_eq!(soon(behind.0).await, Err(Error::Unknown));
    assert_eq!(soon(behind.1).await, Err(Error::Unknown));
    lost.happened().await.unwrap();
    assert_eq!(soon(client.exists("/n")).await, Ok(None));
}

async fn a_request_that_the_socket_did_not_take_was_not_sent(place: Place) {
    let (proxy, tap) = (place.proxy().await, Tap::default());
    let connect = place.connect_through(&proxy).dial(tap.clone());
    let client = connect.session_timeout(SESSION_TIMEOUT * 5).await.unwrap();
    client.exists("/").await.unwrap();
    proxy.hold(Direction::ToServer);
    let taken = client.create("/taken", b"", CreateMode::Persistent);
    tap.clog();
    let refused = client.create("/refused", b"", CreateMode::Persistent);
    let watched = client.get_watched("/");
    proxy.cut(Cut::Reset).await;
    assert_eq!(soon(taken).await, Err(Error::Unknown));
    assert_eq!(soon(refused).await, Err(Error::NotSent));
    assert_eq!(soon(watched).await.unwrap_err(), Error::NotSent);
    tap.unclog();
    proxy.resume(Direction::ToServer);
    assert_eq!(soon(client.exists("/refused")).await, Ok(None));
}

async fn requests_without_a_connection_wait_for_one(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT * 5).await;
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    until_down(&client).await;
    let created = client.create("/n", b"", CreateMode::Persistent);
    let children = client.children_watched("/");
    let watch = client.watch("/n", WatchMode::Persistent);
    proxy.refuse(false);
    assert_eq!(soon(created).await.unwrap().path, "/n");
    let (names, children) = soon(children).await.unwrap();
    assert_eq!(names, ["n"]);
    let mut watch = soon(watch).await.unwrap();
    client.delete("/n", None).await.unwrap();
    soon(children).await.unwrap();
    soon(watch.next()).await.unwrap();
}

async fn an_expired_session_ends_requests_and_watches(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT * 5).await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let (_, _, one_shot) = client.get_watched("/n").await.unwrap();
    let mut stream = client.watch("/n", WatchMode::Recursive).await.unwrap();
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    until_down(&client).await;
    let waiting = client.get("/n");
    proxy.refuse(false);
    let ended = Error::SessionEnded(SessionEnd::Expired);
    assert_eq!(soon(waiting).await, Err(ended));
    assert_eq!(soon(one_shot).await, Err(ended));
    while let Ok(event) = soon(stream.next()).await {
        assert_eq!(event, bellwether_client::PersistentEvent::Missed);
    }
    assert_eq!(soon(stream.next()).await, Err(ended));
    assert_eq!(client.get("/n").await, Err(ended));
    soon(client.ended()).await;
    soon(client.close()).await;
    assert_eq!(
        client.state().to_owned(),
        bellwether_client::SessionState::Ended(SessionEnd::Expired)
    );
}

async fn a_silent_connection_is_given_up_by_an_idle_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    proxy.hold(Direction::ToClient);
    let reply = client.exists("/");
    assert_eq!(soon(reply).await, Err(Error::Unknown));
    proxy.resume(Direction::ToClient);
    until_connections(&client, 2).await;
    soon(client.exists("/")).await.unwrap();
}

/// A caller that keeps sending must not hide that no answers arrive.
async fn a_silent_connection_is_given_up_by_a_busy_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    proxy.hold(Direction::ToClient);
    let first = client.exists("/");
    let busy = client.clone();
    let sending = tokio::spawn(async move {
        let mut turns = tokio::time::interval(Duration::from_millis(20));
        loop {
            turns.tick().await;
            drop(busy.exists("/"));
        }
    });
    let limit = SESSION_TIMEOUT;
    let first = tokio::time::timeout(limit, first).await;
    assert_eq!(
        first.expect("noticed within the session timeout"),
        Err(Error::Unknown)
    );
    sending.abort();
}

async fn one_slow_request_does_not_hang_past_its_timeout(place: Place) {
    let proxy = place.proxy().await;
    let limits = bellwether_client::Limits {
        request_timeout: Some(Duration::from_millis(300)),
        ..Default::default()
    };
    let connect = place.connect_through(&proxy).limits(limits);
    let client = connect
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    proxy.hold(Direction::ToClient);
    let reply = tokio::time::timeout(Duration::from_secs(5), client.exists("/"));
    assert_eq!(reply.await.unwrap(), Err(Error::Unknown));
    proxy.resume(Direction::ToClient);
    soon(client.exists("/")).await.unwrap();
}

/// Also while an attempt to connect hangs, as with a server that does not exist.
async fn a_request_timeout_holds_without_a_connection(place: Place) {
    let proxy = place.proxy().await;
    let limits = bellwether_client::Limits {
        request_timeout: Some(Duration::from_millis(300)),
        ..Default::default()
    };
    let connect = place.connect_through(&proxy).limits(limits);
    let client = connect
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    proxy.hold(Direction::Both);
    proxy.cut(Cut::Close).await;
    until_down(&client).await;
    let reply = tokio::time::timeout(Duration::from_secs(5), client.exists("/"));
    assert_eq!(reply.await.expect("in time"), Err(Error::NotSent));
    proxy.resume(Direction::Both);
    soon(async { while client.exists("/").await.is_err() {} }).await;
}

/// A code that no version of the protocol defines, or one that says nothing about the request.
#[tokio::test]
async fn an_unknown_error_code_is_no_answer() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT * 5).await;
    let before = client.life();
    for code in [-9_999, -1, -4, -7, -122] {
        let answered = proxy.answer_with(code, |request| request.op == Op::SetData);
        let set = client.set("/", b"", None);
        assert_eq!(soon(set).await.unwrap_err(), Error::Unknown, "{code}");
        answered.happened().await.unwrap();
    }
    assert_eq!(client.connections(), 1);
    assert_eq!(client.life().write, before.write, "it proves nothing");
    // A refusal by the server alone is an answer, but the quorum has not seen the request.
    let answered = proxy.answer_with(-127, |request| request.op == Op::SetData);
    let throttled = soon(client.set("/", b"", None)).await.unwrap_err();
    assert!(matches!(throttled, Error::Refused(_)), "{throttled:?}");
    answered.happened().await.unwrap();
    assert!(client.life().any > before.any);
    assert_eq!(client.life().write, before.write);
}
