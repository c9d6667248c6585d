//! Queues, while nothing fails.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use bellwether::blocking::{self, Wait};
use bellwether::{
    DelayQueue, Json, PriorityQueue, PutError, Queue, SettleError, TakeError, connect,
};
use bellwether_testkit::TestServer;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::place::{Place, soon};

on_both_engines! {
    list_tells_who_has_what_and_an_acknowledgement_from_outside_is_fenced,
    items_come_in_order_and_go_when_acknowledged,
    batch_is_put_in_order_or_not_at_all,
    item_that_is_given_back_keeps_its_place,
    dropped_claim_is_delivered_again,
    claim_ends_with_its_session,
    t69_two_consumers_and_two_items_are_both_busy,
    t70_name_stays_the_same_however_often_it_is_given_back,
    t74_poison_becomes_a_dead_letter,
    t74_item_of_consumers_that_die_becomes_a_dead_letter,
    t74_unreadable_item_becomes_a_dead_letter,
    dead_letters_can_be_put_back_and_forgotten,
    t75_delayed_items_come_in_the_order_of_their_times,
    t76_more_urgent_item_put_meanwhile_is_next,
    t77_put_is_refused_before_the_directory_is_too_large,
    several_takes_in_flight_get_different_items,
    waiting_consumers_are_served_in_order_of_arrival,
    shards_lose_nothing,
    peek_and_depth_tell_and_take_nothing,
    oldest_age_is_of_the_item_that_was_put_first,
    t76_more_urgent_item_in_another_shard_is_next,
    item_that_comes_back_from_a_dead_consumer_is_soon_next,
    write_under_a_claim_is_fenced,
    bad_path_is_refused,
    typed_items_round_trip,
}

/// All that is left in the queue, acknowledged.
async fn drain(queue: &Queue<String>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(claim) = soon(queue.try_take()).await.unwrap() {
        all.push(claim.payload().clone());
        claim.ack().await.unwrap();
    }
    all
}

async fn strings(place: &Place) -> Queue<String> {
    Queue::new(&place.client().await, "/queue").payload()
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
    assert!(
        matches!(refused, Err(PutError::TooLarge { bytes: 14, .. })),
        "{refused:?}"
    );
    assert_eq!(drain(&queue).await, batch);
    assert!(queue.put_all(&[]).await.unwrap().is_empty());
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
    // Another consumer's, too.
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
    let client = place.client().await;
    let consumer = Queue::new(&client, "/queue").payload::<String>();
    let queue = strings(&place).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(consumer.take()).await.unwrap();
    let waiter = tokio::spawn(async move { queue.take().await });
    place.until_children("/queue/line", 1).await;
    drop((claim, consumer));
    client.close().await;
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

async fn t74_poison_becomes_a_dead_letter(place: Place) {
    let queue = strings(&place).await.attempts_max(3);
    let id = queue.put(&text("poison")).await.unwrap();
    for attempt in 1..=3 {
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.attempts(), attempt);
        claim.give_back(&format!("failed {attempt}")).await.unwrap();
    }
    assert!(queue.try_take().await.unwrap().is_none());
    let letters = queue.dead_letters().await.unwrap();
    let [letter] = letters.as_slice() else {
        panic!("{letters:?}");
    };
    assert_eq!(letter.id, id);
    assert_eq!(letter.payload, b"poison");
    assert_eq!((letter.attempts, letter.reason.as_str()), (3, "failed 3"));
    assert!(place.children("/queue/items").await.is_empty());
}

async fn t74_item_of_consumers_that_die_becomes_a_dead_letter(place: Place) {
    let producer = strings(&place).await;
    producer.put(&text("deadly")).await.unwrap();
    for _ in 0..2 {
        let client = place.client().await;
        let queue = Queue::new(&client, "/queue").attempts_max(2);
        let claim = soon(queue.take()).await.unwrap();
        drop((claim, queue));
        soon(client.close()).await;
    }
    let queue = strings(&place).await.attempts_max(2);
    assert!(queue.try_take().await.unwrap().is_none());
    let letters = queue.dead_letters().await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].attempts, 2);
    assert!(letters[0].reason.contains("died"), "{}", letters[0].reason);
}

async fn t74_unreadable_item_becomes_a_dead_letter(place: Place) {
    let bytes = Queue::new(&place.client().await, "/queue");
    bytes.put(&vec![0xff]).await.unwrap();
    bytes.put(&b"good".to_vec()).await.unwrap();
    let queue = strings(&place).await;
    assert_eq!(drain(&queue).await, ["good"]);
    let letters = queue.dead_letters().await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].payload, [0xff]);
    assert!(letters[0].reason.starts_with("cannot be read"));
}

async fn dead_letters_can_be_put_back_and_forgotten(place: Place) {
    let queue = strings(&place).await;
    queue.put_all(&[text("a"), text("b")]).await.unwrap();
    for _ in 0..2 {
        let claim = soon(queue.take()).await.unwrap();
        claim.reject("no").await.unwrap();
    }
    let letters = queue.dead_letters().await.unwrap();
    let payloads: Vec<_> = letters
        .iter()
        .map(|letter| letter.payload.clone())
        .collect();
    assert_eq!(payloads, [b"a", b"b"]);
    assert!(queue.forget(&letters[0]).await.unwrap());
    assert!(!queue.forget(&letters[0]).await.unwrap());
    assert!(queue.revive(&letters[1]).await.unwrap());
    assert!(!queue.revive(&letters[1]).await.unwrap());
    assert!(queue.dead_letters().await.unwrap().is_empty());
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("b", 1));
    assert_eq!(claim.id(), letters[1].id);
    claim.ack().await.unwrap();
}

async fn t75_delayed_items_come_in_the_order_of_their_times(place: Place) {
    let queue = DelayQueue::new(&place.client().await, "/delayed").payload::<String>();
    let start = SystemTime::now();
    let later = start + Duration::from_secs(3600);
    queue.put_at(later, &text("late")).await.unwrap();
    let soon_due = start + Duration::from_millis(600);
    queue.put_at(soon_due, &text("third")).await.unwrap();
    let past = start - Duration::from_secs(5);
    queue.put_at(past, &text("second")).await.unwrap();
    let long_past = start - Duration::from_secs(10);
    queue.put_at(long_past, &text("first")).await.unwrap();
    for expected in ["first", "second", "third"] {
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.payload(), expected);
        claim.ack().await.unwrap();
    }
    assert!(SystemTime::now() >= soon_due, "taken before it was due");
    assert!(queue.try_take().await.unwrap().is_none());
    // One that is due earlier than what is waited for wakes the waiter.
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await }
    });
    place.until_children("/delayed/line", 1).await;
    queue.put_after(Duration::ZERO, &text("now")).await.unwrap();
    let claim = soon(waiter).await.unwrap().unwrap();
    assert_eq!(claim.payload(), "now");
    claim.ack().await.unwrap();
}

async fn t76_more_urgent_item_put_meanwhile_is_next(place: Place) {
    let consumer = PriorityQueue::new(&place.client().await, "/ranked").payload::<String>();
    let producer = PriorityQueue::new(&place.client().await, "/ranked").payload::<String>();
    for number in 0..5 {
        producer.put(10, &format!("10 {number}")).await.unwrap();
    }
    let first = soon(consumer.take()).await.unwrap();
    assert_eq!(first.payload(), "10 0");
    first.ack().await.unwrap();
    // The consumer has a list now, and has read ahead.
    producer.put(9, &text("9")).await.unwrap();
    producer
        .put_all(&[(11, text("11")), (0, text("0"))])
        .await
        .unwrap();
    for expected in ["0", "9", "10 1", "10 2", "10 3", "10 4", "11"] {
        let claim = soon(consumer.take()).await.unwrap();
        assert_eq!(claim.payload(), expected);
        claim.ack().await.unwrap();
    }
}

async fn t76_more_urgent_item_in_another_shard_is_next(place: Place) {
    let ranked = async |place: &Place| {
        let queue = PriorityQueue::new(&place.client().await, "/ranked").shards(3);
        queue.payload::<String>()
    };
    let (consumer, producer) = (ranked(&place).await, ranked(&place).await);
    let common: Vec<_> = (0..9).map(|number| (9, number.to_string())).collect();
    producer.put_all(&common).await.unwrap();
    for priority in (0..6).rev() {
        soon(consumer.take()).await.unwrap().ack().await.unwrap();
        let urgent = producer.put(priority, &text("urgent")).await.unwrap();
        let claim = soon(consumer.take()).await.unwrap();
        assert_eq!(claim.id(), urgent);
        claim.ack().await.unwrap();
    }
}

async fn item_that_comes_back_from_a_dead_consumer_is_soon_next(place: Place) {
    let queue = PriorityQueue::new(&place.client().await, "/ranked").payload::<String>();
    let dying = place.client().await;
    let urgent = queue.put(0, &text("urgent")).await.unwrap();
    let consumer = PriorityQueue::new(&dying, "/ranked");
    let claim = soon(consumer.take()).await.unwrap();
    let common: Vec<_> = (0..4).map(|number| (9, number.to_string())).collect();
    queue.put_all(&common).await.unwrap();
    // It has a list now in which the urgent one is not.
    let first = soon(queue.take()).await.unwrap();
    first.ack().await.unwrap();
    drop((claim, consumer));
    dying.close().await;
    // The end of a session leaves no trace that a claim could check; the next but one has seen it.
    let second = soon(queue.take()).await.unwrap();
    let third = soon(queue.take()).await.unwrap();
    assert!([second.id(), third.id()].contains(&urgent));
    // Who gives it back leaves one.
    let (given, kept) = match second.id() == urgent {
        true => (second, third),
        false => (third, second),
    };
    let other = PriorityQueue::new(&place.client().await, "/ranked").payload::<String>();
    let common = soon(other.take()).await.unwrap();
    given.give_back("not now").await.unwrap();
    let again = soon(other.take()).await.unwrap();
    assert_eq!((again.id(), again.attempts()), (urgent, 3));
    for claim in [common, kept, again] {
        claim.ack().await.unwrap();
    }
}

async fn t77_put_is_refused_before_the_directory_is_too_large(place: Place) {
    let queue = strings(&place).await.depth_max(3);
    for _ in 0..3 {
        queue.put(&text("x")).await.unwrap();
    }
    let refused = queue.put(&text("x")).await;
    assert!(
        matches!(refused, Err(PutError::Full { depth: 3, .. })),
        "{refused:?}"
    );
    let refused = queue.put_all(&[text("x"), text("x")]).await;
    assert!(matches!(refused, Err(PutError::Full { .. })), "{refused:?}");
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    queue.put(&text("x")).await.unwrap();
    assert_eq!(place.children("/queue/items").await.len(), 3);
    let large = queue.put(&"x".repeat((64 << 10) + 1)).await;
    assert!(matches!(large, Err(PutError::TooLarge { .. })), "{large:?}");
    let batch: Vec<_> = (0..16).map(|_| "x".repeat(64 << 10)).collect();
    let large = strings(&place).await.put_all(&batch).await;
    assert!(matches!(large, Err(PutError::TooLarge { .. })), "{large:?}");
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
        // Nobody had to be told that somebody else has it.
        assert_eq!(claim.attempts(), 1);
        claim.ack().await.unwrap();
    }
    assert_eq!(seen.len(), 30);
}

async fn waiting_consumers_are_served_in_order_of_arrival(place: Place) {
    let producer = strings(&place).await;
    let mut waiters = Vec::new();
    for number in 0..4 {
        let queue = strings(&place).await;
        waiters.push(tokio::spawn(async move { queue.take().await }));
        place.until_children("/queue/line", number + 1).await;
    }
    for (number, waiter) in waiters.into_iter().enumerate() {
        producer.put(&number.to_string()).await.unwrap();
        let claim = soon(waiter).await.unwrap().unwrap();
        assert_eq!(*claim.payload(), number.to_string());
        claim.ack().await.unwrap();
    }
    assert!(place.children("/queue/line").await.is_empty());
}

async fn shards_lose_nothing(place: Place) {
    let queue = strings(&place).await.shards(3);
    let all: HashSet<_> = (0..30).map(|number| number.to_string()).collect();
    for item in &all {
        queue.put(item).await.unwrap();
    }
    for shard in 0..3 {
        let items = place.children(&format!("/queue/items/{shard}")).await;
        assert!(!items.is_empty(), "shard {shard}");
    }
    assert_eq!(queue.depth().await.unwrap().items, 30);
    let taken: HashSet<_> = drain(&queue).await.into_iter().collect();
    assert_eq!(taken, all);
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

async fn oldest_age_is_of_the_item_that_was_put_first(place: Place) {
    const APART: Duration = Duration::from_millis(30);

    let queue = PriorityQueue::new(&place.client().await, "/ranked")
        .payload::<String>()
        .shards(2);
    assert_eq!(queue.oldest_age().await.unwrap(), None);
    queue.put(1000, &text("oldest")).await.unwrap();
    let start = Instant::now();
    for priority in (0..1000).rev() {
        queue.put(priority, &text("later")).await.unwrap();
        if start.elapsed() > APART {
            break;
        }
    }
    let next = queue.peek().await.unwrap().unwrap();
    let oldest = queue.oldest_age().await.unwrap().unwrap();
    assert!(oldest >= APART && oldest > next.age, "{oldest:?} {next:?}");
    // Claimed or not; until it is acknowledged.
    while let Some(claim) = soon(queue.try_take()).await.unwrap() {
        assert!(queue.oldest_age().await.unwrap().unwrap() >= oldest);
        claim.ack().await.unwrap();
    }
    assert_eq!(queue.oldest_age().await.unwrap(), None);
}

async fn write_under_a_claim_is_fenced(place: Place) {
    let queue = strings(&place).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    let mut write = claim.write();
    write.create("/effect", "of a");
    write.commit().await.unwrap();
    // Another hand ends the claim, and another consumer takes the item.
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    place.outside().delete(&node, None).await.unwrap();
    let other = soon(strings(&place).await.take()).await.unwrap();
    let mut write = claim.write();
    write.set("/effect", "of a late one", None);
    let refused = write.commit().await;
    assert!(
        matches!(refused, Err(bellwether::WriteError::NotHeld)),
        "{refused:?}"
    );
    let refused = claim.ack().await;
    assert!(
        matches!(refused, Err(SettleError::NotClaimed { .. })),
        "{refused:?}"
    );
    other.ack().await.unwrap();
    let (data, _) = place.outside().get_data("/effect").await.unwrap();
    assert_eq!(data, b"of a");
}

async fn bad_path_is_refused(place: Place) {
    let client = place.client().await;
    for path in ["", "queue", "/", "/a//b"] {
        let queue = Queue::new(&client, path);
        let put = queue.put(&Vec::new()).await;
        assert!(matches!(put, Err(PutError::BadPath { .. })), "{put:?}");
        let taken = queue.take().await;
        assert!(matches!(taken, Err(TakeError::BadPath { .. })), "{taken:?}");
        let first = queue.consumer().next().await.unwrap();
        assert!(matches!(first, Err(TakeError::BadPath { .. })), "{first:?}");
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Job {
    host: String,
    tries: u32,
}

async fn typed_items_round_trip(place: Place) {
    let queue = Queue::new(&place.client().await, "/queue").payload::<Json<Job>>();
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
    let queue = Queue::new(&client, "/queue").payload::<String>();
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
    let queue = Queue::new(&place.client().await, "/queue").payload::<String>();
    for item in ["a", "bc"] {
        queue.put(&item.to_owned()).await.unwrap();
    }
    let claim = queue.take().await.unwrap();
    let outside = Queue::new(&place.client().await, "/queue");
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
        "nobody has it"
    );
    // Somebody else has it by now.
    claim.give_back("later").await.unwrap();
    let claim = queue.take().await.unwrap();
    assert!(!outside.ack_claimed(&listed[0]).await.unwrap());
    let listed = outside.list().await.unwrap();
    assert!(outside.ack_claimed(&listed[0]).await.unwrap());
    soon(claim.lost()).await;
    assert_eq!(outside.list().await.unwrap().len(), 1);
    assert!(!outside.ack_claimed(&listed[0]).await.unwrap());
}
