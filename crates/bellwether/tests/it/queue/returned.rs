//! Items that are given back, at once or for later, and batches.

use std::time::{Duration, SystemTime};

use bellwether::{DelayQueue, PriorityQueue, Queue, Tasks};
use bellwether_testkit::Op;

use super::{drain, strings, text};
use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    reason_outlives_consumers_that_say_nothing,
    item_is_not_delivered_before_its_delay_has_passed,
    one_that_waits_gets_the_item_when_it_is_due,
    delay_and_reason_go_with_the_item,
    backoff_outlasts_an_outage,
    give_back_over_a_lost_reply_is_made_once,
    every_kind_of_queue_can_give_back_for_later,
    uncounted_deliveries_cost_no_attempt,
    batch_takes_what_there_is,
}

const DELAY: Duration = Duration::from_millis(800);

async fn reason_outlives_consumers_that_say_nothing(place: Place) {
    let queue = strings(&place).await.attempts_max(3);
    queue.put(&text("job")).await.unwrap();
    for reason in ["no disk", "disk full"] {
        let claim = soon(queue.take()).await.unwrap();
        claim.give_back(reason).await.unwrap();
    }
    drop(soon(queue.take()).await.unwrap());
    place.until_children("/queue/claims", 0).await;
    assert!(soon(queue.try_take()).await.unwrap().is_none());
    let [letter] = queue.dead_letters().await.unwrap().try_into().unwrap();
    assert_eq!(letter.attempts, 3);
    assert!(letter.reason.starts_with("disk full"), "{}", letter.reason);
    assert!(place.children("/queue/returned").await.is_empty());
}

/// The present time without the part of a millisecond, as due times are.
fn now() -> SystemTime {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ms = u64::try_from(since_1970.unwrap().as_millis()).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}

async fn item_is_not_delivered_before_its_delay_has_passed(place: Place) {
    let (queue, other) = (strings(&place).await, strings(&place).await);
    for name in ["first", "second"] {
        queue.put(&text(name)).await.unwrap();
    }
    let claim = soon(queue.take()).await.unwrap();
    let given_back = now();
    claim.give_back_after(DELAY, "not now").await.unwrap();
    // Items behind it are delivered meanwhile, by this handle and by others.
    for queue in [&other, &queue] {
        let claim = soon(queue.try_take()).await.unwrap();
        let claim = match claim {
            Some(claim) if claim.payload() == "second" => claim,
            claim => panic!("{claim:?}"),
        };
        claim.give_back("again").await.unwrap();
    }
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    let claim = soon(async {
        loop {
            if let Some(claim) = other.try_take().await.unwrap() {
                return claim;
            }
        }
    })
    .await;
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("first", 2));
    assert!(given_back.elapsed().unwrap() >= DELAY);
    claim.ack().await.unwrap();
    assert!(place.children("/queue/returned").await.is_empty());
}

async fn one_that_waits_gets_the_item_when_it_is_due(place: Place) {
    let (queue, other) = (strings(&place).await, strings(&place).await);
    queue.put(&text("job")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    let waiting = tokio::spawn(async move { other.take().await });
    place.until_children("/queue/line", 1).await;
    let given_back = now();
    claim.give_back_after(DELAY, "not now").await.unwrap();
    let claim = soon(waiting).await.unwrap().unwrap();
    assert!(given_back.elapsed().unwrap() >= DELAY);
    claim.ack().await.unwrap();
}

async fn delay_and_reason_go_with_the_item(place: Place) {
    let queue = strings(&place).await;
    let forever = Duration::MAX;
    queue.put(&text("job")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    claim.give_back_after(Duration::ZERO, "once").await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    claim.give_back_after(forever, "never").await.unwrap();
    assert!(
        soon(strings(&place).await.try_take())
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(place.children("/queue/returned").await.len(), 1);
    // A name that is not from this recipe is ignored.
    let options = bellwether::zk::CreateMode::Persistent;
    let foreign = place
        .outside()
        .create("/queue/returned/foreign", b"", options);
    foreign.await.unwrap();
    assert!(
        soon(strings(&place).await.try_take())
            .await
            .unwrap()
            .is_none()
    );
}

async fn backoff_outlasts_an_outage(place: Place) {
    let queue = strings(&place).await.attempts_max(5);
    let queue = queue.backoff(Duration::from_millis(100), Duration::from_secs(1));
    queue.put(&text("job")).await.unwrap();
    let began = now();
    for attempt in 1..5 {
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.attempts(), attempt);
        claim.give_back("the database is down").await.unwrap();
    }
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    assert!(began.elapsed().unwrap() >= Duration::from_millis(100 + 200 + 400 + 800));
    assert!(queue.dead_letters().await.unwrap().is_empty());
}

async fn give_back_over_a_lost_reply_is_made_once(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let queue = Queue::<String>::new(&client, "/queue");
    queue.put(&text("job")).await.unwrap();
    for _ in 0..3 {
        let claim = soon(queue.take()).await.unwrap();
        let fault = proxy.swallow_reply_where(|request| request.op == Op::Multi);
        soon(claim.give_back("again")).await.unwrap();
        soon(fault.happened()).await.unwrap();
    }
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(claim.attempts(), 4);
    let fault = proxy.swallow_reply_where(|request| request.op == Op::Multi);
    soon(claim.ack()).await.unwrap();
    soon(fault.happened()).await.unwrap();
    for dir in ["items", "claims", "returned"] {
        assert!(place.children(&format!("/queue/{dir}")).await.is_empty());
    }
}

async fn uncounted_deliveries_cost_no_attempt(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let queue = Queue::<String>::new(&client, "/queue").attempts_max(2);
    queue.put(&text("job")).await.unwrap();
    let take = async |attempts| {
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.attempts(), attempts);
        claim
    };
    for _ in 0..3 {
        let claim = take(1).await;
        let fault = proxy.swallow_reply_where(|request| request.op == Op::Multi);
        soon(claim.give_back_uncounted("stopped")).await.unwrap();
        soon(fault.happened()).await.unwrap();
        assert_eq!(queue.list().await.unwrap()[0].attempts, 0);
    }
    take(1).await.give_back("failed").await.unwrap();
    assert_eq!(queue.peek().await.unwrap().unwrap().attempts, 1);
    // A consumer that dies leaves the count of the others as it was.
    let other = strings(&place).await.attempts_max(100);
    drop(soon(other.take()).await.unwrap());
    place.until_children("/queue/claims", 0).await;
    let claim = soon(other.take()).await.unwrap();
    assert_eq!(claim.attempts(), 3);
    claim.give_back_uncounted("stopped").await.unwrap();
    assert_eq!(queue.list().await.unwrap()[0].attempts, 2);
    assert!(soon(queue.try_take()).await.unwrap().is_none());
    let [letter] = queue.dead_letters().await.unwrap().try_into().unwrap();
    assert_eq!(letter.attempts, 2);
    assert!(place.children("/queue/returned").await.is_empty());
}

async fn every_kind_of_queue_can_give_back_for_later(place: Place) {
    let client = place.client().await;
    let delay = Duration::from_millis(200);
    let by_priority = PriorityQueue::<String>::new(&client, "/priority");
    by_priority.put(1, &text("urgent")).await.unwrap();
    by_priority.put(2, &text("other")).await.unwrap();
    let claim = soon(by_priority.take()).await.unwrap();
    claim.give_back_after(delay, "not now").await.unwrap();
    let claim = soon(by_priority.take()).await.unwrap();
    assert_eq!(claim.payload(), "other");
    claim.ack().await.unwrap();
    assert_eq!(soon(by_priority.take()).await.unwrap().payload(), "urgent");

    let by_time = DelayQueue::<String>::new(&client, "/time");
    by_time
        .put_after(Duration::ZERO, &text("first"))
        .await
        .unwrap();
    by_time
        .put_after(Duration::ZERO, &text("second"))
        .await
        .unwrap();
    let claim = soon(by_time.take()).await.unwrap();
    assert_eq!(claim.payload(), "first");
    claim.give_back_after(delay, "not now").await.unwrap();
    let claim = soon(by_time.take()).await.unwrap();
    assert_eq!(claim.payload(), "second");
    claim.ack().await.unwrap();
    assert_eq!(soon(by_time.take()).await.unwrap().payload(), "first");

    let tasks = Tasks::<Vec<u8>>::new(&client, "/tasks").backoff(delay, delay);
    tasks.add("one", &Vec::new()).await.unwrap();
    let began = now();
    let task = soon(tasks.take()).await.unwrap().unwrap();
    task.fail("not now").await.unwrap();
    let task = soon(tasks.take()).await.unwrap().unwrap();
    assert!(began.elapsed().unwrap() >= delay);
    task.done().await.unwrap();
}

async fn batch_takes_what_there_is(place: Place) {
    let queue = strings(&place).await;
    let names: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    for name in &names {
        queue.put(name).await.unwrap();
    }
    let batch = soon(queue.take_many(30)).await.unwrap();
    assert_eq!(batch.len(), 30);
    let mut taken: Vec<String> = batch.iter().map(|claim| claim.payload().clone()).collect();
    taken.sort_unstable();
    assert_eq!(taken, names[..30]);
    for claim in batch {
        claim.ack().await.unwrap();
    }
    let rest = soon(queue.take_many(30)).await.unwrap();
    assert_eq!(rest.len(), 10);
    drop(rest);
    place.until_children("/queue/claims", 0).await;
    assert_eq!(soon(queue.take_many(0)).await.unwrap().len(), 1);
    place.until_children("/queue/claims", 0).await;
    assert_eq!(drain(&queue).await.len(), 10);
    // If the queue is empty, it waits for the first item.
    let other = strings(&place).await;
    let waiting = tokio::spawn(async move { queue.take_many(5).await });
    place.until_children("/queue/line", 1).await;
    other.put(&text("late")).await.unwrap();
    let batch = soon(waiting).await.unwrap().unwrap();
    assert_eq!(batch.len(), 1);
}
