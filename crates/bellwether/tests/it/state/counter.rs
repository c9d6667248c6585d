//! Counters: each acknowledged addition was made exactly once.

use bellwether::blocking::Wait;
use bellwether::state::Seen;
use bellwether::{Counter, ErrorKind};
use bellwether_wire::op::Op;
use futures_util::StreamExt;
use tokio::task::JoinSet;

use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon};

on_both_engines! {
    t78_addition_with_a_lost_reply_is_made_once,
    t78_addition_whose_session_is_lost_too_is_unknown_and_made_once_at_most,
    additions_of_many_sum_up,
    counter_that_was_deleted_and_made_anew_keeps_what_was_added_since,
    warm_addition_is_one_request,
    set_only_if_it_is_what_was_expected,
    watch_ends_on_the_latest_value_over_a_lost_session,
    sum_out_of_range_and_strange_data_are_errors,
    threads_can_count,
}

async fn t78_addition_with_a_lost_reply_is_made_once(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let counter = Counter::new(&client, "/counts/hits");
    for sum in 1..=3 {
        let lost = proxy.swallow_reply(Op::Multi);
        // The first addition creates directory and node, and each of these requests loses its reply once.
        assert_eq!(soon(counter.add(1)).await.unwrap(), sum);
        lost.happened().await.unwrap();
    }
    for sum in 4..=6 {
        let lost = proxy.drop_request(Op::Multi);
        assert_eq!(soon(counter.add(1)).await.unwrap(), sum);
        lost.happened().await.unwrap();
    }
    let other = Counter::new(&place.client().await, "/counts/hits");
    assert_eq!(other.get().await.unwrap(), 6);
}

async fn t78_addition_whose_session_is_lost_too_is_unknown_and_made_once_at_most(place: Place) {
    for is_made in [true, false] {
        let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
        let counter = Counter::new(&client, format!("/counts/{is_made}"));
        assert_eq!(counter.add(1).await.unwrap(), 1);
        // The current connection works until the fault; then there is none until the session has expired.
        proxy.refuse(true);
        let lost = match is_made {
            true => proxy.swallow_reply(Op::Multi),
            false => proxy.drop_request(Op::Multi),
        };
        let addition = tokio::spawn({
            let counter = counter.clone();
            async move { counter.add(1).await }
        });
        lost.happened().await.unwrap();
        proxy.expire_session().await.unwrap();
        proxy.refuse(false);
        let unknown = soon(addition).await.unwrap();
        assert_fails!(unknown, ErrorKind::OutcomeUnknown(_));
        // The counter continues by itself.
        let sum = 1 + i64::from(is_made);
        assert_eq!(soon(counter.get()).await.unwrap(), sum);
        assert_eq!(soon(counter.add(5)).await.unwrap(), sum + 5);
    }
}

async fn additions_of_many_sum_up(place: Place) {
    let mut adders = JoinSet::new();
    for _ in 0..4 {
        let counter = Counter::new(&place.client().await, "/counts/hits");
        adders.spawn(async move {
            for _ in 0..25 {
                counter.add(2).await.unwrap();
            }
        });
    }
    soon(adders.join_all()).await;
    let counter = Counter::new(&place.client().await, "/counts/hits");
    assert_eq!(counter.get().await.unwrap(), 200);
    assert_eq!(counter.add(-200).await.unwrap(), 0);
    // The receipts are deleted with their sessions, and that of this session with it.
    place.until_children("/counts", 2).await;
}

async fn counter_that_was_deleted_and_made_anew_keeps_what_was_added_since(place: Place) {
    let one = Counter::new(&place.client().await, "/counts/hits");
    let other = Counter::new(&place.client().await, "/counts/hits");
    assert_eq!(one.add(1).await.unwrap(), 1);
    place.outside().delete("/counts/hits", None).await.unwrap();
    assert_eq!(other.add(10).await.unwrap(), 10);
    assert_eq!(one.add(1).await.unwrap(), 11);
}

async fn warm_addition_is_one_request(place: Place) {
    let (proxy, client) = place.proxied(std::time::Duration::from_secs(60)).await;
    let counter = Counter::new(&client, "/counts/hits");
    // The node just created could be another's, created again.
    counter.add(1).await.unwrap();
    counter.add(1).await.unwrap();
    proxy.reset_counts();
    counter.add(1).await.unwrap();
    let counts = proxy.counts();
    let requests: usize = counts
        .iter()
        .filter(|(op, _)| **op != Op::Ping)
        .map(|(_, count)| count)
        .sum();
    assert_eq!((counts.get(&Op::Multi), requests), (Some(&1), 1));
}

async fn set_only_if_it_is_what_was_expected(place: Place) {
    let counter = Counter::new(&place.client().await, "/counts/hits");
    let other = Counter::new(&place.client().await, "/counts/hits");
    assert!(!counter.compare_and_set(1, 2).await.unwrap());
    assert!(counter.compare_and_set(0, 7).await.unwrap());
    other.add(1).await.unwrap();
    assert!(!counter.compare_and_set(7, 9).await.unwrap());
    assert!(counter.compare_and_set(8, 9).await.unwrap());
    assert_eq!(other.get().await.unwrap(), 9);
}

async fn watch_ends_on_the_latest_value_over_a_lost_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let writer = Counter::new(&place.client().await, "/counts/hits");
    let mut values = Counter::new(&client, "/counts/hits").watch();
    assert_eq!(values.next().await.unwrap().unwrap(), Seen::Value(0));
    writer.add(4).await.unwrap();
    assert_eq!(soon(values.next()).await.unwrap().unwrap(), Seen::Value(4));
    expire(&proxy).await;
    writer.add(4).await.unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&Seen::Value(8)) || !seen.contains(&Seen::Renewed) {
        seen.push(soon(values.next()).await.unwrap().unwrap());
    }
    assert!(seen.len() <= 2, "{seen:?}");
    drop(values);
    drop(client);
    place.until_no_watches().await;
}

async fn sum_out_of_range_and_strange_data_are_errors(place: Place) {
    let counter = Counter::new(&place.client().await, "/counts/hits");
    counter.add(i64::MAX).await.unwrap();
    let over = counter.add(1).await;
    assert_fails!(over, ErrorKind::OutOfRange);
    let outside = place.outside();
    outside.set("/counts/hits", b"many", None).await.unwrap();
    let strange = counter.get().await;
    assert_fails!(strange, ErrorKind::Unreadable(_));
    let nowhere = Counter::new(&place.client().await, "hits").get().await;
    assert_fails!(nowhere, ErrorKind::BadPath(_));
}

async fn threads_can_count(place: Place) {
    let client = place.client().await;
    let thread = std::thread::spawn(move || {
        let counter = Counter::new(&client, "/hits");
        counter.add(2).wait().unwrap();
        let value = bellwether::blocking::iter(counter.watch()).next();
        (value.unwrap().unwrap(), counter.add(3).wait().unwrap())
    });
    let counted = tokio::task::spawn_blocking(|| thread.join().unwrap());
    assert_eq!(soon(counted).await.unwrap(), (Seen::Value(2), 5));
}
