//! Which item is next, and which consumer gets it.

use std::time::{Duration, Instant, SystemTime};

use bellwether::error::OtherUse;
use bellwether::queue::RecordedOrder;
use bellwether::{DelayQueue, Error, ErrorKind, PriorityQueue, Queue};
use bellwether_wire::op::Op;

use super::{drain, strings, text};
use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    t75_delayed_items_come_in_the_order_of_their_times,
    t76_more_urgent_item_put_meanwhile_is_next,
    waiting_consumers_are_served_in_order_of_arrival,
    first_in_line_that_is_not_polled_keeps_nobody_waiting,
    oldest_age_is_of_the_item_that_was_put_first,
    oldest_age_of_a_busy_queue_is_found_in_a_few_looks,
    item_that_comes_back_from_a_dead_consumer_is_soon_next,
    t99_items_behind_a_claimed_one_come_in_order_of_arrival,
    t99_consumers_in_turn_get_items_in_order_of_arrival,
    t100_handle_of_another_order_is_refused,
    t100_queue_without_a_recorded_order_works,
}

async fn t75_delayed_items_come_in_the_order_of_their_times(place: Place) {
    let queue = DelayQueue::<String>::new(&place.client().await, "/delayed");
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
    // An item that is due earlier than the awaited one wakes the waiter.
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
    let consumer = PriorityQueue::<String>::new(&place.client().await, "/ranked");
    let producer = PriorityQueue::<String>::new(&place.client().await, "/ranked");
    for number in 0..5 {
        producer.put(10, &format!("10 {number}")).await.unwrap();
    }
    let first = soon(consumer.take()).await.unwrap();
    assert_eq!(first.payload(), "10 0");
    first.ack().await.unwrap();
    // The consumer now has a list, and has read ahead.
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

async fn t99_items_behind_a_claimed_one_come_in_order_of_arrival(place: Place) {
    let queue = strings(&place).await;
    let numbers: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    queue.put_all(&numbers).await.unwrap();
    let claimed = soon(queue.take()).await.unwrap();
    assert_eq!(claimed.payload(), "0");
    // Consumers that know nothing of each other, as those of a command, and then one that goes on.
    for number in &numbers[1..10] {
        let claim = soon(strings(&place).await.take()).await.unwrap();
        assert_eq!(claim.payload(), number);
        claim.ack().await.unwrap();
    }
    assert_eq!(drain(&strings(&place).await).await, numbers[10..]);
    claimed.ack().await.unwrap();
}

/// Each has read ahead what the other takes meanwhile.
async fn t99_consumers_in_turn_get_items_in_order_of_arrival(place: Place) {
    let consumers = [strings(&place).await, strings(&place).await];
    let numbers: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    consumers[0].put_all(&numbers).await.unwrap();
    let mut claims = Vec::new();
    for (number, consumer) in numbers.iter().zip(consumers.iter().cycle()) {
        let claim = soon(consumer.take()).await.unwrap();
        assert_eq!(claim.payload(), number);
        claims.push(claim);
        if claims.len() == 2 {
            claims.remove(0).ack().await.unwrap();
        }
    }
}

async fn t100_handle_of_another_order_is_refused(place: Place) {
    let client = place.client().await;
    let fifo = || Queue::<String>::new(&client, "/queue");
    let ranked = || PriorityQueue::<String>::new(&client, "/queue");
    let delayed = || DelayQueue::<String>::new(&client, "/queue");
    // A consumer that waits leaves the order to the first put.
    let waiting = fifo();
    let waiter = tokio::spawn(async move { waiting.take().await });
    place.until_children("/queue/line", 1).await;
    ranked().put(7, &text("later")).await.unwrap();
    let refused = soon(waiter).await.unwrap();
    assert_fails!(
        refused,
        ErrorKind::InUse(OtherUse::Order(RecordedOrder::Priority))
    );
    for refused in [
        fifo().put(&text("x")).await,
        delayed().put_after(Duration::ZERO, &text("x")).await,
    ] {
        assert_fails!(
            refused,
            ErrorKind::InUse(OtherUse::Order(RecordedOrder::Priority))
        );
    }
    let (fifo, delayed) = (fifo(), delayed());
    for _ in 0..2 {
        for refused in [fifo.try_take().await, delayed.try_take().await] {
            assert_fails!(refused, ErrorKind::InUse(OtherUse::Order(_)));
        }
        assert!(matches!(
            fifo.peek().await,
            Err(Error {
                kind: ErrorKind::InUse(OtherUse::Order(_)),
                ..
            })
        ));
    }
    ranked().put(3, &text("sooner")).await.unwrap();
    assert_eq!(fifo.list().await.unwrap().len(), 2);
    for expected in ["sooner", "later"] {
        let claim = soon(ranked().take()).await.unwrap();
        assert_eq!((claim.payload().as_str(), claim.attempts()), (expected, 1));
        claim.ack().await.unwrap();
    }
}

/// As one that was made before orders were recorded.
async fn t100_queue_without_a_recorded_order_works(place: Place) {
    let client = place.client().await;
    let fifo = Queue::<String>::new(&client, "/queue");
    fifo.put(&text("a")).await.unwrap();
    let zk = place.outside();
    zk.set("/queue", br#"{"version":1,"recipe":"queue"}"#, None)
        .await
        .unwrap();
    let ranked = PriorityQueue::<String>::new(&client, "/queue");
    ranked.put(1, &text("b")).await.unwrap();
    let other = Queue::<String>::new(&client, "/queue");
    other.put(&text("c")).await.unwrap();
    for expected in ["a", "c", "b"] {
        let claim = soon(ranked.take()).await.unwrap();
        assert_eq!(claim.payload(), expected);
        claim.ack().await.unwrap();
    }
}

async fn item_that_comes_back_from_a_dead_consumer_is_soon_next(place: Place) {
    let queue = PriorityQueue::<String>::new(&place.client().await, "/ranked");
    let (proxy, dying) = place.proxied(SESSION_TIMEOUT).await;
    let urgent = queue.put(0, &text("urgent")).await.unwrap();
    let consumer = PriorityQueue::<Vec<u8>>::new(&dying, "/ranked");
    let _claim = soon(consumer.take()).await.unwrap();
    let common: Vec<_> = (0..4).map(|number| (9, number.to_string())).collect();
    queue.put_all(&common).await.unwrap();
    // It now has a list without the urgent item.
    let first = soon(queue.take()).await.unwrap();
    first.ack().await.unwrap();
    kill(&proxy).await;
    place.until_children("/ranked/claims", 0).await;
    // An expired session leaves no trace that a claim could check; the second take at the latest has seen it.
    let second = soon(queue.take()).await.unwrap();
    let third = soon(queue.take()).await.unwrap();
    assert!([second.id(), third.id()].contains(&urgent));
    // Giving it back leaves a trace.
    let (given, kept) = match second.id() == urgent {
        true => (second, third),
        false => (third, second),
    };
    let other = PriorityQueue::<String>::new(&place.client().await, "/ranked");
    let common = soon(other.take()).await.unwrap();
    given.give_back("not now").await.unwrap();
    let again = soon(other.take()).await.unwrap();
    assert_eq!((again.id(), again.attempts()), (urgent, 3));
    for claim in [common, kept, again] {
        claim.ack().await.unwrap();
    }
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

async fn first_in_line_that_is_not_polled_keeps_nobody_waiting(place: Place) {
    let (first, second) = (strings(&place).await, strings(&place).await);
    let mut left_alone = Box::pin(first.take());
    tokio::select! {
        biased;
        taken = &mut left_alone => panic!("{taken:?}"),
        () = place.until_children("/queue/line", 1) => {}
    }
    let waiter = tokio::spawn({
        let second = second.clone();
        async move { second.take().await }
    });
    place.until_children("/queue/line", 2).await;
    let producer = strings(&place).await;
    producer.put_all(&[text("a"), text("b")]).await.unwrap();
    let claim = soon(waiter).await.unwrap().unwrap();
    claim.ack().await.unwrap();
    let claim = soon(left_alone).await.unwrap();
    claim.ack().await.unwrap();
}

async fn oldest_age_is_of_the_item_that_was_put_first(place: Place) {
    const APART: Duration = Duration::from_millis(30);

    let queue = PriorityQueue::<String>::new(&place.client().await, "/ranked");
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

async fn oldest_age_of_a_busy_queue_is_found_in_a_few_looks(place: Place) {
    const NO_NODE: i32 = -101;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let queue = Queue::<String>::new(&client, "/queue");
    queue.put(&text("item")).await.unwrap();
    // As if the item were acknowledged between the two steps of each look.
    for _ in 0..100 {
        let _fault = proxy.answer_with(NO_NODE, |request| {
            let path = request.path().unwrap_or_default();
            request.op == Op::Exists && path.contains("/items/")
        });
    }
    proxy.reset_counts();
    assert_eq!(soon(queue.oldest_age()).await.unwrap(), None);
    let looks = proxy.count(Op::GetChildren);
    assert!(looks < 50, "{looks} looks");
}
