//! Cost of queues: requests, counted between client and server.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bellwether::{Claim, DelayQueue, Error, PriorityQueue, Queue};
use bellwether_testkit::{Direction, FaultProxy};
use bellwether_wire::op::Op;
use tokio::task::JoinSet;

use crate::line::counts::{LONG, expected, until_sent};
use crate::support::place::{Place, soon};

on_both_engines! {
    put_take_and_acknowledge_are_a_round_trip_each,
    ordered_queues_take_and_acknowledge_in_two_round_trips,
    put_meanwhile_costs_one_claim_in_vain,
    oldest_age_is_two_round_trips,
    drain_is_linear_in_the_number_of_items,
    item_wakes_one_of_the_consumers_however_many_wait,
    refused_put_is_one_look,
    consumers_side_by_side_do_not_fight_for_the_same_items,
}

/// Number of items read ahead in one request.
const READ_AHEAD: usize = 16;

/// Requests since the last reset, except the client's pings and the watch on a hold that lasts long on a slow machine.
fn requests(proxy: &FaultProxy) -> BTreeMap<String, usize> {
    let counts = proxy.counts().into_iter();
    counts
        .filter(|(op, _)| !matches!(op, Op::Ping | Op::GetData | Op::RemoveWatches))
        .map(|(op, count)| (format!("{op:?}"), count))
        .collect()
}

async fn put_take_and_acknowledge_are_a_round_trip_each(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
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

async fn ordered_queues_take_and_acknowledge_in_two_round_trips(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let producer = PriorityQueue::<Vec<u8>>::new(&place.client().await, "/ranked");
    producer.put_all(&vec![(1, Vec::new()); 5]).await.unwrap();
    let queue = PriorityQueue::<Vec<u8>>::new(&client, "/ranked");
    takes_warm_in_one_round_trip(&proxy, || {
        let queue = queue.clone();
        async move { queue.take().await }
    })
    .await;

    let producer = DelayQueue::<Vec<u8>>::new(&place.client().await, "/delayed");
    for _ in 0..5 {
        let due = SystemTime::now();
        producer.put_at(due, &Vec::new()).await.unwrap();
    }
    let queue = DelayQueue::<Vec<u8>>::new(&client, "/delayed");
    takes_warm_in_one_round_trip(&proxy, || {
        let queue = queue.clone();
        async move { queue.take().await }
    })
    .await;
}

async fn takes_warm_in_one_round_trip<F>(proxy: &FaultProxy, take: impl Fn() -> F)
where
    F: Future<Output = Result<Claim<Vec<u8>>, Error>> + Send + 'static,
{
    soon(take()).await.unwrap().ack().await.unwrap();
    proxy.reset_counts();
    // All requests that are needed are sent without waiting for a reply.
    proxy.hold(Direction::ToClient);
    let taking = tokio::spawn(take());
    until_sent(proxy, 2).await;
    proxy.resume(Direction::ToClient);
    let claim = soon(taking).await.unwrap().unwrap();
    let taken = [(Op::Multi, 1), (Op::MultiRead, 1)];
    assert_eq!(requests(proxy), expected(taken));
    claim.ack().await.unwrap();
    let acknowledged = [(Op::Multi, 2), (Op::MultiRead, 1)];
    assert_eq!(requests(proxy), expected(acknowledged));
}

async fn put_meanwhile_costs_one_claim_in_vain(place: Place) {
    let producer = PriorityQueue::<Vec<u8>>::new(&place.client().await, "/queue");
    producer.put_all(&vec![(5, Vec::new()); 5]).await.unwrap();
    let (proxy, client) = place.proxied(LONG).await;
    let queue = PriorityQueue::<Vec<u8>>::new(&client, "/queue");
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    let urgent = producer.put(1, &b"urgent".to_vec()).await.unwrap();
    proxy.reset_counts();
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(claim.id(), urgent);
    assert_eq!(
        requests(&proxy),
        expected([
            // Both were sent with a read of the next candidates; there was one read between them.
            (Op::Multi, 2),
            (Op::MultiRead, 3),
            (Op::Exists, 1),
            (Op::GetChildren2, 2),
        ])
    );
}

async fn oldest_age_is_two_round_trips(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
    queue.put_all(&[Vec::new(), Vec::new()]).await.unwrap();
    proxy.reset_counts();
    soon(queue.oldest_age()).await.unwrap().unwrap();
    assert_eq!(
        requests(&proxy),
        expected([(Op::GetChildren, 1), (Op::Exists, 1)])
    );
}

async fn drain_is_linear_in_the_number_of_items(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
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
    /// Events of items, of claims, of the place before and of the own place, when an item is put and when it is removed.
    const EVENTS_PER_ITEM_MAX: usize = 8;

    let producer = Queue::<Vec<u8>>::new(&place.client().await, "/queue");
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..WAITING {
        // Of the takes of one session, two have a place in the line.
        let client = place.client_through(&proxy, LONG).await;
        let queue = Queue::<Vec<u8>>::new(&client, "/queue");
        waiters.push(tokio::spawn(async move { queue.take().await }));
        place.until_children("/queue/line", number + 1).await;
    }
    proxy.reset_counts();
    for waiter in waiters {
        producer.put(&Vec::new()).await.unwrap();
        let claim = soon(waiter).await.unwrap().unwrap();
        claim.ack().await.unwrap();
    }
    // If each item woke all waiters, each would cause half as many events as there are consumers.
    let events = proxy.events();
    assert!(events <= WAITING * EVENTS_PER_ITEM_MAX, "{events} events");
}

async fn refused_put_is_one_look(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let queue = Queue::<Vec<u8>>::new(&client, "/queue").depth_max(2);
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

    let producer = Queue::<Vec<u8>>::new(&place.client().await, "/queue");
    for batch in vec![Vec::new(); ITEMS].chunks(80) {
        producer.put_all(batch).await.unwrap();
    }
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        let queue = Queue::<Vec<u8>>::new(&place.client_through(&proxy, LONG).await, "/queue");
        consumers.spawn(async move {
            while let Some(claim) = queue.try_take().await.unwrap() {
                claim.ack().await.unwrap();
            }
        });
    }
    proxy.reset_counts();
    soon(consumers.join_all()).await;
    let counts = requests(&proxy);
    // If all consumers tried for the first item each time, each of the others would waste a write.
    let in_vain = counts["Multi"] - 2 * ITEMS;
    assert!(in_vain < ITEMS, "{in_vain} claims in vain: {counts:?}");
}
