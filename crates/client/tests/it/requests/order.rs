//! Rules of writing and order: which thread writes, what is sent together, and the order of deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether_client::{Client, CreateMode, EventKind, PersistentEvent, WatchMode};
use bellwether_testkit::Direction;
use futures_util::FutureExt as _;

use crate::support::place::{Place, soon};
use crate::support::tap::Tap;

on_both_engines! {
    a_request_is_written_by_its_caller,
    requests_of_a_batch_leave_in_one_write,
    replies_come_in_the_order_of_requests,
    an_event_comes_before_the_reply_that_shows_its_change,
    an_event_never_comes_before_the_reply_that_armed_its_watch,
}

async fn tapped(place: &Place) -> (Tap, Client) {
    let tap = Tap::default();
    let connect = place.connect().session_timeout(Duration::from_secs(60));
    let client = connect.dial(tap.clone()).await.unwrap();
    // The requests that open a session are done.
    client.exists("/").await.unwrap();
    (tap, client)
}

async fn a_request_is_written_by_its_caller(place: Place) {
    let (tap, client) = tapped(&place).await;
    for _ in 0..100 {
        let before = tap.writes();
        let reply = client.exists("/");
        // Before anything was awaited.
        assert_eq!(tap.writes(), before + 1);
        reply.await.unwrap();
    }
}

async fn requests_of_a_batch_leave_in_one_write(place: Place) {
    let (tap, client) = tapped(&place).await;
    let before = tap.writes();
    let replies = client.batch(|client| {
        let created = client.create("/n", b"", CreateMode::Persistent);
        let inner = client.batch(|client| client.set("/n", b"x", Some(0)));
        let reads: Vec<_> = (0..100).map(|_| client.get("/n")).collect();
        assert_eq!(tap.writes(), before);
        (created, inner, reads)
    });
    assert_eq!(tap.writes(), before + 1);
    let (created, set, reads) = replies;
    assert_eq!(created.await.unwrap().path, "/n");
    assert_eq!(set.await.unwrap().version, 1);
    for read in reads {
        assert_eq!(&read.await.unwrap().0[..], b"x");
    }
    // An empty batch writes nothing, and one that panics does not block later requests.
    let before = tap.writes();
    client.batch(|_| ());
    assert_eq!(tap.writes(), before);
    let broken = client.clone();
    let panicked = tokio::spawn(async move { broken.batch(|_| panic!("on purpose")) }).await;
    assert!(panicked.is_err());
    assert!(soon(client.exists("/n")).await.unwrap().is_some());
}

async fn replies_come_in_the_order_of_requests(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    // Nothing arrives until all have been sent, so an answer to the wrong request would be seen.
    proxy.hold(Direction::ToClient);
    let mut sets = Vec::new();
    let mut reads = Vec::new();
    for number in 0..500_i32 {
        sets.push(client.set("/n", &number.to_be_bytes(), Some(number)));
        reads.push(client.get("/n"));
    }
    proxy.resume(Direction::ToClient);
    let mut last = None;
    for (number, (set, read)) in (0..).zip(sets.into_iter().zip(reads)) {
        let stat = soon(set).await.unwrap();
        assert_eq!(stat.version, number + 1);
        assert!(last < Some(stat.mzxid));
        last = Some(stat.mzxid);
        // The reply has arrived, so all earlier requests are answered.
        let (data, read_stat) = soon(read).await.unwrap();
        assert_eq!(data[..], number.to_be_bytes());
        assert_eq!(read_stat, stat);
    }
    // The last of many: all earlier ones are answered with it.
    let mut replies: Vec<_> = (0..200).map(|_| client.get("/n")).collect();
    soon(replies.pop().unwrap()).await.unwrap();
    for reply in replies {
        // So many polls exhaust the cooperative budget that tokio grants a task.
        let reply = tokio::task::unconstrained(reply).now_or_never();
        assert!(reply.expect("answered before").is_ok());
    }
}

async fn an_event_comes_before_the_reply_that_shows_its_change(place: Place) {
    let (client, other) = (place.client().await, place.client().await);
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    for round in 0..100 {
        let (_, stat, watch) = client.get_watched("/n").await.unwrap();
        let told = Arc::new(AtomicBool::new(false));
        let (telling, mut watch) = (told.clone(), Box::pin(watch));
        // The writer is sometimes another session, and sometimes this one.
        let writer = if round % 2 == 0 { &other } else { &client };
        let set = writer.set("/n", b"", None);
        let seen = loop {
            let (_, seen) = client.get("/n").await.unwrap();
            if seen.version > stat.version {
                break seen;
            }
        };
        // No await between the reply and this look.
        if let Some(event) = watch.as_mut().now_or_never() {
            assert_eq!(event.unwrap().kind, EventKind::NodeDataChanged);
            telling.store(true, Ordering::SeqCst);
        }
        assert!(told.load(Ordering::SeqCst), "round {round}: {seen:?}");
        set.await.unwrap();
    }
}

async fn an_event_never_comes_before_the_reply_that_armed_its_watch(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    let other = place.client().await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    for _ in 0..20 {
        proxy.hold(Direction::ToClient);
        let one_shot = client.get_watched("/n");
        let stream = client.watch("/n", WatchMode::Persistent);
        let marker = client.sync("/");
        // The server has armed both, and fires both, before this client receives anything.
        let before = other.exists("/n").await.unwrap().unwrap().version;
        proxy.resume(Direction::ToClient);
        soon(marker).await.unwrap();
        other.set("/n", b"", Some(before)).await.unwrap();
        let (_, stat, watch) = one_shot.now_or_never().expect("answered").unwrap();
        assert_eq!(stat.version, before);
        let mut stream = stream.now_or_never().expect("answered").unwrap();
        let event = soon(watch).await.unwrap();
        assert_eq!(event.kind, EventKind::NodeDataChanged);
        assert_eq!(soon(stream.next()).await, Ok(PersistentEvent::Node(event)));
    }
}
