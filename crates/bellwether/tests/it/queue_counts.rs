//! What queues cost: requests, counted between client and server.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether::{PriorityQueue, Queue};
use bellwether_server::proto::op::Op;
use bellwether_testkit::FaultProxy;
use tokio::task::JoinSet;

use crate::place::{Place, soon};

on_both_engines! {
    put_take_and_acknowledge_are_a_round_trip_each,
    priority_queue_looks_before_it_claims,
    drain_is_linear_in_the_number_of_items,
    item_wakes_one_of_the_consumers_however_many_wait,
    refused_put_is_one_look,
    consumers_side_by_side_do_not_fight_for_the_same_items,
}

/// A session timeout in which no heartbeat falls due.
const LONG: Duration = Duration::from_secs(60);

/// How many items are read ahead in one request.
const READ_AHEAD: usize = 16;

/// The requests since the last reset, but for the client's pings and the watch over a hold that lasts long on a slow
/// machine.
fn requests(proxy: &FaultProxy) -> BTreeMap<String, usize> {
    let counts = proxy.counts().into_iter();
    counts
        .filter(|(op, _)| !matches!(op, Op::Ping | Op::GetData | Op::RemoveWatches))
        .map(|(op, count)| (format!("{op:?}"), count))
        .collect()
}

fn expected<const N: usize>(requests: [(Op, usize); N]) -> BTreeMap<String, usize> {
    requests
        .into_iter()
        .map(|(op, count)| (format!("{op:?}"), count))
        .collect()
}

async fn put_take_and_acknowledge_are_a_round_trip_each(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::new(&client, "/queue");
    for _ in 0..5 {
        queue.put(&Vec::new()).await.unwrap();
    }
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    proxy.reset_counts();
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(requests(&proxy), expected([(Op::Multi, 1)]));
    claim.ack().await.unwrap();
    assert_eq!(requests(&proxy), expected([(Op::Multi, 2)]));
    queue.put(&Vec::new()).await.unwrap();
    assert_eq!(requests(&proxy), expected([(Op::Multi, 3)]));
    queue.put_all(&vec![Vec::new(); 50]).await.unwrap();
    assert_eq!(requests(&proxy), expected([(Op::Multi, 4)]));
}

async fn priority_queue_looks_before_it_claims(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = PriorityQueue::new(&client, "/queue");
    for _ in 0..5 {
        queue.put(1, &Vec::new()).await.unwrap();
    }
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    proxy.reset_counts();
    let claim = soon(queue.take()).await.unwrap();
    claim.ack().await.unwrap();
    // Both stats travel together.
    assert_eq!(
        requests(&proxy),
        expected([(Op::Exists, 2), (Op::Multi, 2)])
    );
}

async fn drain_is_linear_in_the_number_of_items(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::new(&client, "/queue");
    // Makes the directories.
    queue.put(&Vec::new()).await.unwrap();
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    for count in [160, 640] {
        for batch in vec![Vec::new(); count].chunks(80) {
            queue.put_all(batch).await.unwrap();
        }
        proxy.reset_counts();
        for _ in 0..count {
            soon(queue.take()).await.unwrap().ack().await.unwrap();
        }
        assert_eq!(
            requests(&proxy),
            expected([
                // Items and claims, once.
                (Op::GetChildren2, 2),
                (Op::MultiRead, count / READ_AHEAD),
                (Op::Multi, 2 * count),
            ])
        );
    }
}

async fn item_wakes_one_of_the_consumers_however_many_wait(place: Place) {
    const WAITING: usize = 30;
    /// Of items, of claims, of the place before and of the own place, when an item is put and when it goes.
    const EVENTS_PER_ITEM_MAX: usize = 8;

    let producer = Queue::new(&place.client().await, "/queue");
    let (proxy, client) = place.proxied(LONG).await;
    let mut waiters = Vec::new();
    for number in 0..WAITING {
        let queue = Queue::new(&client, "/queue");
        waiters.push(tokio::spawn(async move { queue.take().await }));
        place.until_children("/queue/line", number + 1).await;
    }
    proxy.reset_counts();
    for waiter in waiters {
        producer.put(&Vec::new()).await.unwrap();
        let claim = soon(waiter).await.unwrap().unwrap();
        claim.ack().await.unwrap();
    }
    // If each item woke all who wait, there would be half as many events for each as there are consumers.
    let events = proxy.events();
    assert!(events <= WAITING * EVENTS_PER_ITEM_MAX, "{events} events");
}

async fn refused_put_is_one_look(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::new(&client, "/queue").depth_max(2);
    queue.put_all(&[Vec::new(), Vec::new()]).await.unwrap();
    proxy.reset_counts();
    for _ in 0..10 {
        queue.put(&Vec::new()).await.unwrap_err();
    }
    assert_eq!(requests(&proxy), expected([(Op::Exists, 20)]));
}

async fn consumers_side_by_side_do_not_fight_for_the_same_items(place: Place) {
    const CONSUMERS: usize = 8;
    const ITEMS: usize = 800;

    let producer = Queue::new(&place.client().await, "/queue");
    for batch in vec![Vec::new(); ITEMS].chunks(80) {
        producer.put_all(batch).await.unwrap();
    }
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        let queue = Queue::new(&place.client_through(&proxy, LONG).await, "/queue");
        consumers.spawn(async move {
            while let Some(claim) = queue.try_take().await.unwrap() {
                claim.ack().await.unwrap();
            }
        });
    }
    proxy.reset_counts();
    soon(consumers.join_all()).await;
    let counts = requests(&proxy);
    // If all tried for the first one each time, there would be a write in vain for each of the others.
    let in_vain = counts["Multi"] - 2 * ITEMS;
    assert!(in_vain < ITEMS, "{in_vain} claims in vain: {counts:?}");
}
