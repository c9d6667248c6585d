//! Cost of elections and barriers: requests, counted between client and server, and how many of them wait for another.

use bellwether::{Barrier, Client, DoubleBarrier, Election};
use bellwether_testkit::{Direction, FaultProxy};
use bellwether_wire::op::Op;

use crate::line::counts::{LONG, expected, requests, until_sent};
use crate::support::place::{Place, soon};

on_both_engines! {
    take_over_of_the_only_other_candidate_costs_nothing,
    resignation_wakes_the_next_candidate_alone,
    double_barrier_is_entered_in_one_round_trip_and_passed_in_none,
    whoever_completes_a_round_sends_one_request_more,
    double_barrier_is_left_in_one_round_trip,
    barrier_is_waited_for_in_one_round_trip,
}

pub(crate) async fn until_watches(place: &Place, count: usize) {
    soon(async {
        while place.watches().await != count {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
}

async fn take_over_of_the_only_other_candidate_costs_nothing(place: Place) {
    let (proxy, client) = place.proxied(LONG).await;
    let first = Election::new(&place.client().await, "/counts");
    let first = soon(first.campaign()).await.unwrap();
    let second = Election::new(&client, "/counts");
    proxy.reset_counts();
    let second = tokio::spawn(async move { second.campaign().await });
    // Two on the leader, by the next candidate and by itself, and one on the candidate's own node.
    until_watches(&place, 3).await;
    assert_eq!(
        requests(&proxy),
        expected([(Op::Create2, 1), (Op::GetChildren, 1), (Op::GetData, 2)])
    );
    proxy.reset_counts();
    first.resign().await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    assert_eq!(requests(&proxy), expected([]));
    second.resign().await.unwrap();
}

async fn resignation_wakes_the_next_candidate_alone(place: Place) {
    let first = Election::new(&place.client().await, "/counts");
    let first = soon(first.campaign()).await.unwrap();
    let mut running = Vec::new();
    for number in 2..=5 {
        let (proxy, client) = place.proxied(LONG).await;
        let election = Election::new(&client, "/counts");
        let campaign = tokio::spawn(async move { election.campaign().await });
        place.until_children("/counts", number).await;
        running.push((proxy, client, campaign));
    }
    // Each watches its predecessor. (The first read of a session detects the kind of server.)
    soon(async {
        while running
            .iter()
            .any(|(proxy, ..)| proxy.count(Op::GetData) < 2)
        {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
    for (proxy, ..) in &running {
        proxy.reset_counts();
    }
    first.resign().await.unwrap();
    let (proxy, _, next) = running.remove(0);
    let next = soon(next).await.unwrap().unwrap();
    assert_eq!(proxy.events(), 1);
    for (proxy, client, campaign) in &running {
        // An event would arrive before the reply.
        client.raw().sync("/").await.unwrap();
        assert_eq!((proxy.events(), campaign.is_finished()), (0, false));
        assert_eq!(proxy.count(Op::GetChildren), 0);
    }
    // A candidate deeper in line has to list the line, whether its predecessor led or only waited.
    let (proxy, _, after) = running.remove(0);
    next.resign().await.unwrap();
    let after = soon(after).await.unwrap().unwrap();
    assert_eq!(proxy.count(Op::GetChildren), 1);
    after.resign().await.unwrap();
}

/// Two barriers of size two, the first behind a proxy; both know the current round.
async fn two_who_have_met(place: &Place) -> (FaultProxy, Client, DoubleBarrier, DoubleBarrier) {
    let (proxy, client) = place.proxied(LONG).await;
    let one = DoubleBarrier::new(&client, "/counts", 2);
    let two = DoubleBarrier::new(&place.client().await, "/counts", 2);
    let met = async |barrier: DoubleBarrier| {
        let inside = barrier.enter().await.unwrap();
        inside.leave().await.unwrap();
    };
    soon(async { tokio::join!(met(one.clone()), met(two.clone())) }).await;
    proxy.reset_counts();
    (proxy, client, one, two)
}

async fn double_barrier_is_entered_in_one_round_trip_and_passed_in_none(place: Place) {
    let (proxy, _client, one, two) = two_who_have_met(&place).await;
    // All requests that are needed are sent without waiting for a reply.
    proxy.hold(Direction::ToClient);
    let entering = tokio::spawn(async move { one.enter().await });
    until_sent(&proxy, 4).await;
    let sent = expected([
        (Op::Multi, 1),
        (Op::GetChildren, 1),
        (Op::Exists, 1),
        (Op::GetData, 1),
    ]);
    assert_eq!(requests(&proxy), sent);
    proxy.resume(Direction::ToClient);
    // The watch on the own node follows; no caller waits for it.
    until_watches(&place, 2).await;
    proxy.reset_counts();
    let two = soon(two.enter()).await.unwrap();
    let one = soon(entering).await.unwrap().unwrap();
    assert_eq!(requests(&proxy), expected([]));
    soon(async { tokio::join!(one.leave(), two.leave()) })
        .await
        .0
        .unwrap();
}

async fn whoever_completes_a_round_sends_one_request_more(place: Place) {
    let (proxy, _client, one, two) = two_who_have_met(&place).await;
    let entering = tokio::spawn(async move { two.enter().await });
    until_watches(&place, 2).await;
    let one = soon(one.enter()).await.unwrap();
    let sent = expected([
        (Op::Multi, 2),
        (Op::GetChildren, 1),
        (Op::Exists, 1),
        (Op::GetData, 1),
    ]);
    let mut counted = requests(&proxy);
    // The watch on `ready`, no longer needed, is being removed; an older hold is watched.
    counted.remove("RemoveWatches");
    if counted["GetData"] == 2 {
        counted.insert("GetData".into(), 1);
    }
    assert_eq!(counted, sent);
    let two = soon(entering).await.unwrap().unwrap();
    soon(async { tokio::join!(one.leave(), two.leave()) })
        .await
        .0
        .unwrap();
}

async fn double_barrier_is_left_in_one_round_trip(place: Place) {
    let (proxy, client, one, two) = two_who_have_met(&place).await;
    // The last handle would delete its receipt.
    let handle = one.clone();
    let entering = tokio::spawn(async move { handle.enter().await });
    until_watches(&place, 2).await;
    let two = soon(two.enter()).await.unwrap();
    let _one = one;
    let one = soon(entering).await.unwrap().unwrap();
    proxy.reset_counts();
    proxy.hold(Direction::ToClient);
    let leaving = tokio::spawn(one.leave());
    until_sent(&proxy, 3).await;
    let sent = expected([(Op::Delete, 1), (Op::GetData, 1), (Op::GetChildren, 1)]);
    assert_eq!(requests(&proxy), sent);
    proxy.resume(Direction::ToClient);
    // Answered after the look at the other members, which has found one inside.
    client.raw().sync("/").await.unwrap();
    soon(two.leave()).await.unwrap();
    soon(leaving).await.unwrap().unwrap();
    // The notice that all have left cost no request.
    let mut counted = requests(&proxy);
    counted.remove("Sync");
    assert_eq!(counted, sent);
}

async fn barrier_is_waited_for_in_one_round_trip(place: Place) {
    let gate = Barrier::new(&place.client().await, "/counts");
    gate.set().await.unwrap();
    let (proxy, client) = place.proxied(LONG).await;
    proxy.reset_counts();
    proxy.hold(Direction::ToClient);
    let waiting = Barrier::new(&client, "/counts");
    let waiting = tokio::spawn(async move { waiting.wait().await });
    until_sent(&proxy, 2).await;
    proxy.resume(Direction::ToClient);
    until_watches(&place, 1).await;
    gate.lift().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    assert_eq!(
        requests(&proxy),
        expected([(Op::Sync, 1), (Op::GetData, 1)])
    );
}
