//! Queues when connections fail and sessions expire.

use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::error::ConnectError;
use bellwether::{Error, ErrorKind, PriorityQueue, Queue, connect};
use bellwether_testkit::{Cut, TestServer};
use bellwether_wire::op::Op;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::behind::{Behind, strings, text};
use crate::support::place::{Place, soon};

on_both_engines! {
    t67_stale_acknowledgement_is_refused,
    t67_acknowledgement_of_a_deleted_claim_is_refused,
    t68_polls_of_an_empty_queue_leave_no_watches,
    t71_consumer_goes_on_after_its_session_and_says_so,
    t72_put_that_fails_says_so,
    dropped_take_leaves_nothing_claimed,
    take_dropped_between_its_claim_and_what_it_reads_ahead_leaves_nothing_claimed,
    vanished_directories_are_made_anew,
}

async fn t67_stale_acknowledgement_is_refused(place: Place) {
    let behind = Behind::a_proxy(&place).await;
    behind.queue.put(&text("a")).await.unwrap();
    let stale = soon(behind.queue.take()).await.unwrap();
    // Its session expires while it cannot know it.
    behind.proxy.refuse(true);
    behind.proxy.cut(Cut::Close).await;
    let other = strings(&place).await;
    let claim = soon(other.take()).await.unwrap();
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("a", 2));
    assert!(claim.token() > stale.token());
    assert!(!stale.is_held(), "two hold it");
    behind.proxy.refuse(false);
    let refused = soon(stale.ack()).await;
    assert_fails!(refused, ErrorKind::LostWithSession);
    assert_eq!(place.children("/queue/items").await.len(), 1);
    claim.ack().await.unwrap();
}

/// An operator deletes a claim, another consumer takes the item, and the first one acknowledges. Returns whether that succeeded.
async fn stale_acknowledgement(place: &Place) -> bool {
    let Behind {
        proxy: _proxy,
        queue,
        ..
    } = Behind::a_proxy(place).await;
    queue.put(&text("a")).await.unwrap();
    let stale = soon(queue.take()).await.unwrap();
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    place.outside().delete(&node, None).await.unwrap();
    let claim = soon(strings(place).await.take()).await.unwrap();
    let acknowledged = soon(stale.ack()).await.is_ok();
    let gone = place.children("/queue/items").await.is_empty();
    assert_eq!(acknowledged, gone);
    assert_eq!(claim.ack().await.is_err(), gone);
    gone
}

async fn t67_acknowledgement_of_a_deleted_claim_is_refused(place: Place) {
    assert!(!stale_acknowledgement(&place).await);
}

async fn t71_consumer_goes_on_after_its_session_and_says_so(place: Place) {
    let behind = Behind::a_proxy(&place).await;
    let mut consumer = behind.queue.consumer();
    behind.queue.put(&text("a")).await.unwrap();
    let claim = soon(consumer.next()).await.unwrap().unwrap();
    assert_eq!(claim.payload(), "a");
    // Cut off for longer than the session timeout.
    behind.proxy.refuse(true);
    behind.proxy.cut(Cut::Close).await;
    place.until_children("/queue/claims", 0).await;
    let told = tokio::spawn(async move {
        let told = consumer.next().await;
        (told, consumer)
    });
    soon(behind.session.ended()).await;
    behind.proxy.refuse(false);
    let (told, mut consumer) = soon(told).await.unwrap();
    assert!(
        matches!(
            told,
            Some(Err(Error {
                kind: ErrorKind::SessionEnded,
                ..
            }))
        ),
        "{told:?}"
    );
    assert!(!claim.is_held());
    let again = soon(consumer.next()).await.unwrap().unwrap();
    assert_eq!((again.payload().as_str(), again.attempts()), ("a", 2));
    again.ack().await.unwrap();
    // Also while it waits in line.
    let waiter = tokio::spawn(async move { consumer.next().await });
    place.until_children("/queue/line", 1).await;
    strings(&place).await.put(&text("b")).await.unwrap();
    let claim = soon(waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(claim.payload(), "b");
    claim.ack().await.unwrap();
}

async fn t72_put_that_fails_says_so(place: Place) {
    let behind = Behind::a_proxy(&place).await;
    behind.proxy.refuse(true);
    behind.proxy.cut(Cut::Close).await;
    soon(behind.session.ended()).await;
    let refused = soon(behind.queue.put(&text("a"))).await;
    assert_fails!(refused, ErrorKind::NoSession(_));
    assert!(place.children("/queue/items").await.is_empty());
}

async fn dropped_take_leaves_nothing_claimed(place: Place) {
    let behind = Behind::a_proxy(&place).await;
    // While it waits in line.
    let waiter = tokio::spawn({
        let queue = behind.queue.clone();
        async move { queue.take().await }
    });
    place.until_children("/queue/line", 1).await;
    waiter.abort();
    place.until_children("/queue/line", 0).await;
    // After the claim is made, while its reply is held back.
    behind.queue.put(&text("a")).await.unwrap();
    behind.queue.peek().await.unwrap().unwrap();
    let lost = behind.proxy.swallow_reply(Op::Multi);
    let waiter = tokio::spawn({
        let queue = behind.queue.clone();
        async move { queue.take().await }
    });
    behind.proxy.refuse(true);
    lost.happened().await.unwrap();
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    behind.proxy.refuse(false);
    place.until_children("/queue/claims", 0).await;
    let claim = soon(behind.queue.take()).await.unwrap();
    assert_eq!(claim.payload(), "a");
    claim.ack().await.unwrap();
}

async fn take_dropped_between_its_claim_and_what_it_reads_ahead_leaves_nothing_claimed(
    place: Place,
) {
    let (proxy, client) = place.proxied(Duration::from_secs(10)).await;
    let queue = PriorityQueue::<Vec<u8>>::new(&client, "/queue");
    queue.put_all(&vec![(1, Vec::new()); 2]).await.unwrap();
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    // The claim is answered; the read behind it is not.
    let lost = proxy.swallow_reply(Op::MultiRead);
    proxy.refuse(true);
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await }
    });
    lost.happened().await.unwrap();
    assert_eq!(place.children("/queue/claims").await.len(), 1);
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    proxy.refuse(false);
    place.until_children("/queue/claims", 0).await;
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(claim.attempts(), 2);
    claim.ack().await.unwrap();
}

async fn vanished_directories_are_made_anew(place: Place) {
    let queue = strings(&place).await;
    for name in ["a", "b"] {
        queue.put(&text(name)).await.unwrap();
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.payload(), name);
        claim.ack().await.unwrap();
        let waiter = tokio::spawn({
            let queue = queue.clone();
            async move { queue.take().await }
        });
        place.until_children("/queue/line", 1).await;
        for dir in ["items", "claims"] {
            let dir = format!("/queue/{dir}");
            place.outside().delete(&dir, None).await.unwrap();
        }
        queue.put(&text("woken")).await.unwrap();
        let claim = soon(waiter).await.unwrap().unwrap();
        assert_eq!(claim.payload(), "woken");
        claim.ack().await.unwrap();
    }
}

async fn t68_polls_of_an_empty_queue_leave_no_watches(place: Place) {
    let client = place.client().await;
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
    for _ in 0..100 {
        let polls = (0..100).map(|_| Box::pin(queue.try_take()));
        for taken in soon(join_all(polls)).await {
            assert!(taken.unwrap().is_none());
        }
    }
    assert_eq!(place.watches().await, 0);
    // These wait, so they have watches.
    for _ in 0..100 {
        let late = queue.take_timeout(Duration::from_millis(2)).await;
        assert_fails!(late, ErrorKind::TimedOut { .. });
    }
    place.until_no_watches().await;
    // Still in the same session.
    queue.put(&Vec::new()).await.unwrap();
    soon(queue.take()).await.unwrap().ack().await.unwrap();
}

#[tokio::test]
async fn t77_directory_that_is_larger_than_a_frame_is_drained() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let queue = Queue::<Vec<u8>>::new(&client, "/queue").depth_max(100_000);
    let batch = vec![Vec::new(); 1000];
    // A list of this many names is larger than the 1 MiB that other clients accept.
    for _ in 0..32 {
        queue.put_all(&batch).await.unwrap();
    }
    let consumer = Queue::<Vec<u8>>::new(&client, "/queue");
    for _ in 0..100 {
        soon(consumer.take()).await.unwrap().ack().await.unwrap();
    }
    let refused = Queue::<Vec<u8>>::new(&client, "/queue")
        .put(&Vec::new())
        .await;
    assert_fails!(refused, ErrorKind::Full { depth: 31_900, .. });
}

#[tokio::test]
async fn put_near_the_end_of_the_sequence_is_refused() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    // Each put checks the depth when the queue is nearly full.
    let queue = Queue::<Vec<u8>>::new(&client, "/queue").depth_max(5);
    queue.put(&Vec::new()).await.unwrap();
    for counter in [i32::MAX - 1_000_000, i32::MAX - 1] {
        let items = "/queue/items";
        server.set_child_counter(items, counter).await.unwrap();
        let refused = soon(queue.put(&Vec::new())).await;
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
    let below = i32::MAX - 1_000_001;
    let items = "/queue/items";
    server.set_child_counter(items, below).await.unwrap();
    queue.put(&Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_goes_on_after_the_end_of_the_sequence_in_its_line() {
    let server = TestServer::start().await.unwrap();
    let [client, other] = [(); 2].map(|()| connect(server.connect_string()));
    let (client, other) = (client.await.unwrap(), other.await.unwrap());
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
    let first = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await }
    });
    let raw = client.raw();
    let in_line = async || {
        raw.children("/queue/line")
            .await
            .is_ok_and(|line| !line.is_empty())
    };
    soon(async { while !in_line().await {} }).await;
    let line = "/queue/line";
    server.set_child_counter(line, i32::MAX - 1).await.unwrap();
    let mut consumer = Queue::<Vec<u8>>::new(&other, "/queue").consumer();
    let refused = soon(consumer.next()).await;
    assert!(
        matches!(
            refused,
            Some(Err(Error {
                kind: ErrorKind::SequenceUsedUp,
                ..
            }))
        ),
        "{refused:?}"
    );
    server.set_child_counter(line, 7).await.unwrap();
    for _ in 0..2 {
        queue.put(&Vec::new()).await.unwrap();
    }
    let (first, second) = soon(async { tokio::join!(first, consumer.next()) }).await;
    first.unwrap().unwrap().ack().await.unwrap();
    let second = second.expect("the consumer does not end");
    second.unwrap().ack().await.unwrap();
}

#[tokio::test]
async fn consumer_with_too_long_a_message_is_refused() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let queue = Queue::<Vec<u8>>::new(&client, "/queue").message("x".repeat(2_000_000));
    let refused = soon(queue.take()).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
}

/// A take waits for another take of the same handle, which no task polls meanwhile.
#[tokio::test]
async fn takes_go_on_by_themselves_on_the_runtime_of_the_caller() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).on_current_runtime();
    let client = client.await.unwrap();
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
    for _ in 0..2 {
        queue.put(&Vec::new()).await.unwrap();
    }
    let mut first = Box::pin(queue.take());
    assert!(futures_util::poll!(&mut first).is_pending());
    let second = soon(queue.try_take()).await.unwrap();
    second.expect("there are two").ack().await.unwrap();
    soon(first).await.unwrap().ack().await.unwrap();
}

/// A plain thread outlives the runtime that runs its session.
#[tokio::test(flavor = "multi_thread")]
async fn take_ends_with_the_runtime_of_its_session() {
    let place = Place::embedded().await;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = format!("{}{}", place.server(), place.chroot());
    let connected = runtime.spawn(async { connect(address).on_current_runtime().await });
    let queue = Queue::<Vec<u8>>::new(&connected.await.unwrap().unwrap(), "/queue");
    let take = || {
        let (queue, (tell, taken)) = (queue.clone(), oneshot::channel());
        std::thread::spawn(move || tell.send(queue.take().wait().map(drop)));
        taken
    };
    let taken = take();
    place.until_children("/queue/line", 1).await;
    runtime.shutdown_background();
    // A take that waited, and a later one: its client has an ended session, or could open none after it.
    for taken in [taken, take()] {
        let taken = soon(taken).await.unwrap();
        let is_over = match &taken {
            Err(Error {
                kind: ErrorKind::SessionEnded,
                ..
            }) => true,
            Err(Error {
                kind: ErrorKind::NoSession(source),
                ..
            }) => {
                matches!(source, ConnectError::RuntimeGone)
            }
            _ => false,
        };
        assert!(is_over, "{taken:?}");
    }
}
