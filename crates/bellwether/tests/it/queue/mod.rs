//! Queues without faults.

mod behind;
mod counts;
mod dead_letters;
mod faults;
mod histories;
mod lost_replies;
mod orders;
mod returned;
mod tasks;

use bellwether::blocking::Wait;
use futures_util::StreamExt;
use std::collections::HashSet;
use std::time::Duration;

use bellwether::{ErrorKind, blocking};
use bellwether::{Json, Queue, connect, zk};
use bellwether_testkit::TestServer;
use serde::{Deserialize, Serialize};

use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    list_tells_who_has_what_and_an_acknowledgement_from_outside_is_fenced,
    items_come_in_order_and_go_when_acknowledged,
    batch_is_put_in_order_or_not_at_all,
    batch_is_measured_with_its_lists_of_access,
    item_that_is_given_back_keeps_its_place,
    dropped_claim_is_delivered_again,
    claim_ends_with_its_session,
    t69_two_consumers_and_two_items_are_both_busy,
    t70_name_stays_the_same_however_often_it_is_given_back,
    t77_put_is_refused_before_the_directory_is_too_large,
    several_takes_in_flight_get_different_items,
    takes_at_once_leave_nothing_that_there_is,
    peek_and_depth_tell_and_take_nothing,
    write_under_a_claim_is_fenced,
    bad_path_is_refused,
    typed_items_round_trip,
}

/// Takes and acknowledges everything left in the queue.
async fn drain(queue: &Queue<String>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(claim) = soon(queue.try_take()).await.unwrap() {
        all.push(claim.payload().clone());
        claim.ack().await.unwrap();
    }
    all
}

async fn strings(place: &Place) -> Queue<String> {
    Queue::new(&place.client().await, "/queue")
}

fn text(text: &str) -> String {
    text.to_owned()
}

async fn items_come_in_order_and_go_when_acknowledged(place: Place) {
    let (producer, consumer) = (strings(&place).await, strings(&place).await);
    let mut ids = Vec::new();
    for number in 0..40 {
        ids.push(producer.put(&number.to_string()).await.unwrap());
    }
    let mut tokens = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let claim = soon(consumer.take()).await.unwrap();
        assert_eq!(*claim.payload(), number.to_string());
        assert_eq!(claim.id(), *id);
        assert_eq!(claim.attempts(), 1);
        assert!(claim.is_held());
        tokens.push(claim.token());
        claim.ack().await.unwrap();
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(place.children("/queue/items").await.is_empty());
    assert!(place.children("/queue/claims").await.is_empty());
    assert!(consumer.try_take().await.unwrap().is_none());
}

async fn batch_is_put_in_order_or_not_at_all(place: Place) {
    let queue = strings(&place).await.item_bytes_max(10);
    let batch: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(queue.put_all(&batch).await.unwrap().len(), 20);
    let refused = queue.put_all(&[text("good"), text("much too large")]).await;
    assert_fails!(refused, ErrorKind::TooLarge { bytes: 14, .. });
    assert_eq!(drain(&queue).await, batch);
    assert!(queue.put_all(&[]).await.unwrap().is_empty());
}

async fn batch_is_measured_with_its_lists_of_access(place: Place) {
    let digest = |user: &str| {
        let id = format!("{user}:{}=", "x".repeat(27));
        zk::Acl::new(zk::acl::ALL, zk::Id::new("digest", &id))
    };
    let queue = Queue::<Vec<u8>>::new(&place.client().await, "/queue");
    let queue = queue.acl([digest("one"), digest("other"), zk::Acl::open()]);
    let refused = soon(queue.put_all(&vec![Vec::new(); 8_000])).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    let put = soon(queue.put_all(&vec![Vec::new(); 3_000])).await;
    assert_eq!(put.unwrap().len(), 3_000);
}

async fn item_that_is_given_back_keeps_its_place(place: Place) {
    let queue = strings(&place).await;
    queue.put_all(&[text("a"), text("b")]).await.unwrap();
    let a = soon(queue.take()).await.unwrap();
    a.give_back("not now").await.unwrap();
    let a = soon(queue.take()).await.unwrap();
    assert_eq!((a.payload().as_str(), a.attempts()), ("a", 2));
    let b = soon(queue.take()).await.unwrap();
    assert_eq!(b.payload(), "b");
    // By another consumer, too.
    a.give_back("again").await.unwrap();
    let other = strings(&place).await;
    let a = soon(other.take()).await.unwrap();
    assert_eq!((a.payload().as_str(), a.attempts()), ("a", 3));
    a.ack().await.unwrap();
    b.ack().await.unwrap();
}

async fn dropped_claim_is_delivered_again(place: Place) {
    let queue = strings(&place).await;
    queue.put(&text("a")).await.unwrap();
    drop(soon(queue.take()).await.unwrap());
    let again = soon(queue.take()).await.unwrap();
    assert_eq!((again.payload().as_str(), again.attempts()), ("a", 2));
    again.ack().await.unwrap();
}

async fn claim_ends_with_its_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let consumer = Queue::<String>::new(&client, "/queue");
    let queue = strings(&place).await;
    queue.put(&text("a")).await.unwrap();
    let _claim = soon(consumer.take()).await.unwrap();
    let waiter = tokio::spawn(async move { queue.take().await });
    place.until_children("/queue/line", 1).await;
    kill(&proxy).await;
    let claim = soon(waiter).await.unwrap().unwrap();
    assert_eq!(claim.attempts(), 2);
    claim.ack().await.unwrap();
}

async fn t69_two_consumers_and_two_items_are_both_busy(place: Place) {
    let producer = strings(&place).await;
    let (one, two) = (strings(&place).await, strings(&place).await);
    for round in 0..20 {
        let batch = [format!("{round} a"), format!("{round} b")];
        producer.put_all(&batch).await.unwrap();
        let (a, b) = soon(async { tokio::join!(one.take(), two.take()) }).await;
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_ne!(a.payload(), b.payload());
        a.ack().await.unwrap();
        b.ack().await.unwrap();
    }
}

async fn t70_name_stays_the_same_however_often_it_is_given_back(place: Place) {
    let queue = strings(&place).await.attempts_max(100);
    queue.put(&text("a")).await.unwrap();
    let names = place.children("/queue/items").await;
    for _ in 0..20 {
        let claim = soon(queue.take()).await.unwrap();
        claim.give_back("again").await.unwrap();
    }
    assert_eq!(place.children("/queue/items").await, names);
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(claim.attempts(), 21);
}

async fn t77_put_is_refused_before_the_directory_is_too_large(place: Place) {
    let queue = strings(&place).await.depth_max(3);
    for _ in 0..3 {
        queue.put(&text("x")).await.unwrap();
    }
    let refused = queue.put(&text("x")).await;
    assert_fails!(refused, ErrorKind::Full { depth: 3, .. });
    let refused = queue.put_all(&[text("x"), text("x")]).await;
    assert_fails!(refused, ErrorKind::Full { .. });
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    queue.put(&text("x")).await.unwrap();
    assert_eq!(place.children("/queue/items").await.len(), 3);
    let large = queue.put(&"x".repeat((64 << 10) + 1)).await;
    assert_fails!(large, ErrorKind::TooLarge { .. });
    let batch: Vec<_> = (0..16).map(|_| "x".repeat(64 << 10)).collect();
    let large = strings(&place).await.put_all(&batch).await;
    assert_fails!(large, ErrorKind::TooLarge { .. });
}

async fn several_takes_in_flight_get_different_items(place: Place) {
    let queue = strings(&place).await;
    let batch: Vec<_> = (0..30).map(|number| number.to_string()).collect();
    queue.put_all(&batch).await.unwrap();
    let mut takes: Vec<_> = (0..30).map(|_| Box::pin(queue.take())).collect();
    let claims = soon(futures_util::future::join_all(&mut takes)).await;
    let mut seen = HashSet::new();
    for claim in claims {
        let claim = claim.unwrap();
        assert!(seen.insert(claim.payload().clone()));
        // No attempt failed because another consumer has it.
        assert_eq!(claim.attempts(), 1);
        claim.ack().await.unwrap();
    }
    assert_eq!(seen.len(), 30);
}

async fn takes_at_once_leave_nothing_that_there_is(place: Place) {
    for round in 0..20 {
        // A handle that has read nothing yet.
        let queue = strings(&place).await;
        queue.put_all(&[text("a"), text("b")]).await.unwrap();
        let (one, other) = soon(async { tokio::join!(queue.try_take(), queue.try_take()) }).await;
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(one.is_some() && other.is_some(), "round {round}");
        for claim in [one, other].into_iter().flatten() {
            claim.ack().await.unwrap();
        }
    }
}

async fn peek_and_depth_tell_and_take_nothing(place: Place) {
    let queue = strings(&place).await;
    assert!(queue.peek().await.unwrap().is_none());
    assert_eq!(queue.depth().await.unwrap().items, 0);
    let ids = queue
        .put_all(&[text("a"), text("b"), text("c")])
        .await
        .unwrap();
    let a = soon(queue.take()).await.unwrap();
    let b = soon(queue.take()).await.unwrap();
    b.reject("no").await.unwrap();
    let peek = queue.peek().await.unwrap().unwrap();
    assert_eq!((peek.id, peek.payload), (ids[2].clone(), b"c".to_vec()));
    assert_eq!(peek.attempts, 0);
    assert!(peek.age < Duration::from_secs(60), "{:?}", peek.age);
    let depth = queue.depth().await.unwrap();
    assert_eq!((depth.items, depth.claimed, depth.dead), (2, 1, 1));
    a.ack().await.unwrap();
}

async fn write_under_a_claim_is_fenced(place: Place) {
    let queue = strings(&place).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    let mut write = claim.write();
    write = write.create("/effect", "of a");
    write.commit().await.unwrap();
    // An operator deletes the claim, and another consumer takes the item.
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    place.outside().delete(&node, None).await.unwrap();
    let other = soon(strings(&place).await.take()).await.unwrap();
    let mut write = claim.write();
    write = write.set("/effect", "of a late one", None);
    let refused = write.commit().await;
    assert_fails!(refused, ErrorKind::NotHeld);
    let refused = claim.ack().await;
    assert_fails!(refused, ErrorKind::NotHeld);
    other.ack().await.unwrap();
    let (data, _) = place.outside().get("/effect").await.unwrap();
    assert_eq!(&data[..], b"of a");
}

async fn bad_path_is_refused(place: Place) {
    let client = place.client().await;
    for path in ["", "queue", "/", "/a//b"] {
        let queue = Queue::<Vec<u8>>::new(&client, path);
        let put = queue.put(&Vec::new()).await;
        assert_fails!(put, ErrorKind::BadPath(_));
        let taken = queue.take().await;
        assert_fails!(taken, ErrorKind::BadPath(_));
        let first = queue.consumer().next().await.unwrap();
        assert_fails!(first, ErrorKind::BadPath(_));
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Job {
    host: String,
    tries: u32,
}

async fn typed_items_round_trip(place: Place) {
    let queue = Queue::<Json<Job>>::new(&place.client().await, "/queue");
    let job = || {
        let host = text("db7");
        Json(Job { host, tries: 2 })
    };
    queue.put(&job()).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(*claim.payload(), job());
    claim.ack().await.unwrap();
}

#[test]
fn plain_threads_take_too() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(TestServer::start()).unwrap();
    let client = connect(server.connect_string()).wait().unwrap();
    let queue = Queue::<String>::new(&client, "/queue");
    queue.put_all(&[text("a"), text("b")]).wait().unwrap();
    for (expected, claim) in ["a", "b"].into_iter().zip(blocking::iter(queue.consumer())) {
        let claim = claim.unwrap();
        assert_eq!(claim.payload(), expected);
        claim.ack().wait().unwrap();
    }
    drop(queue);
    client.close().wait();
}

async fn list_tells_who_has_what_and_an_acknowledgement_from_outside_is_fenced(place: Place) {
    let queue = Queue::<String>::new(&place.client().await, "/queue");
    for item in ["a", "bc"] {
        queue.put(&item.to_owned()).await.unwrap();
    }
    let claim = queue.take().await.unwrap();
    let outside = Queue::<Vec<u8>>::new(&place.client().await, "/queue");
    let listed = outside.list().await.unwrap();
    let told = listed.iter().map(|item| {
        let token = item.claim.as_ref().map(|claim| claim.token);
        (item.bytes, item.attempts, token)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(1, 1, Some(claim.token())), (2, 0, None)]
    );
    assert!(
        !outside.ack_claimed(&listed[1]).await.unwrap(),
        "it is free"
    );
    // Another consumer has it by now.
    claim.give_back("later").await.unwrap();
    let claim = queue.take().await.unwrap();
    assert!(!outside.ack_claimed(&listed[0]).await.unwrap());
    let listed = outside.list().await.unwrap();
    assert!(outside.ack_claimed(&listed[0]).await.unwrap());
    soon(claim.lost()).await;
    assert_eq!(outside.list().await.unwrap().len(), 1);
    assert!(!outside.ack_claimed(&listed[0]).await.unwrap());
}
