//! The double barrier.

mod deaths;

use bellwether::blocking::Wait;
use bellwether::error::OtherUse;
use std::collections::BTreeMap;
use std::time::Duration;

use bellwether::barrier::BarrierGuard;
use bellwether::{Client, DoubleBarrier, Error, ErrorKind, Lock, connect, zk};
use bellwether_testkit::{Cut, Direction, SeenRequest, TestServer};
use bellwether_wire::op::Op;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::place::{Place, SESSION_TIMEOUT, soon, until_reaped};

on_both_engines! {
    all_enter_and_leave_together_round_after_round,
    members_tell_who_is_missing,
    t48_wake_up_that_is_not_the_word_lets_nobody_pass,
    t50_only_members_are_counted,
    t51_leave_returns_with_one_too_many_and_at_its_limit,
    t52_what_wakes_those_who_enter_does_not_let_others_leave,
    t55_one_who_comes_late_enters_the_next_round,
    t57_quick_member_enters_the_next_round_while_a_slow_one_leaves,
    t58_one_too_many_waits_for_the_next_round,
    one_too_many_takes_the_place_of_one_who_gives_up,
    one_too_many_looks_at_its_place_and_not_at_the_number,
    one_too_many_is_in_the_next_round_however_late_it_learns_of_it,
    sizes_have_to_agree,
}

type Entering = JoinHandle<Result<BarrierGuard, Error>>;

fn barrier(client: &Client, size: usize) -> DoubleBarrier {
    DoubleBarrier::new(client, "/meet", size)
}

fn enter(client: &Client, size: usize) -> Entering {
    let barrier = barrier(client, size);
    tokio::spawn(async move { barrier.enter().await })
}

/// Enters in the background, and returns when `number` members are there and wait.
async fn enter_as(place: &Place, client: &Client, size: usize, number: usize) -> Entering {
    let entering = enter(client, size);
    until_waiting(place, number, &[&entering]).await;
    entering
}

/// Waits until `members` members wait, each with a watch on its own node and on the `ready` node. Panics if one of `entering` passes.
///
/// A member sets the watch on its own node after it has found members missing; a member inside watches nothing else.
async fn until_waiting(place: &Place, members: usize, entering: &[&Entering]) {
    let wait = || {
        let has_passed = entering.iter().any(|member| member.is_finished());
        assert!(!has_passed, "passed with {members} members");
    };
    soon(async {
        while place.watches().await != 2 * members {
            wait();
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
    wait();
}

/// Two members that have entered together.
async fn two_inside(place: &Place) -> [(Client, BarrierGuard); 2] {
    let (one, two) = (place.client().await, place.client().await);
    let [first, second] = enter_both(place, &one, &two).await;
    [(one, first), (two, second)]
}

async fn enter_both(place: &Place, one: &Client, two: &Client) -> [BarrierGuard; 2] {
    let first = enter_as(place, one, 2, 1).await;
    let second = soon(barrier(two, 2).enter()).await.unwrap();
    [soon(first).await.unwrap().unwrap(), second]
}

/// The node of a member inside a round.
fn node(inside: &BarrierGuard) -> String {
    format!("/meet/members/{}", inside.node())
}

async fn leave_all(inside: impl IntoIterator<Item = BarrierGuard>) {
    let mut leaving = JoinSet::new();
    for inside in inside {
        leaving.spawn(inside.leave());
    }
    while let Some(left) = soon(leaving.join_next()).await {
        left.unwrap().unwrap();
    }
}

async fn all_enter_and_leave_together_round_after_round(place: Place) {
    const SIZE: usize = 4;
    const ROUNDS: u64 = 8;
    let (told, mut steps) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..SIZE {
        let barrier = barrier(&place.client().await, SIZE);
        let told = told.clone();
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                told.send((round, "arrived")).unwrap();
                let inside = barrier.enter().await.unwrap();
                assert_eq!(inside.round(), round);
                assert!(inside.is_held());
                told.send((round, "inside")).unwrap();
                inside.leave().await.unwrap();
                told.send((round, "out")).unwrap();
            }
        });
    }
    drop(told);
    let mut seen = BTreeMap::<_, usize>::new();
    while let Some((round, step)) = soon(steps.recv()).await {
        *seen.entry((round, step)).or_default() += 1;
        let count = |step| seen.get(&(round, step)).copied().unwrap_or(0);
        match step {
            "inside" => assert_eq!(count("arrived"), SIZE, "round {round}: too early in"),
            "out" => assert_eq!(count("inside"), SIZE, "round {round}: too early out"),
            _ => {}
        }
    }
    assert!(seen.values().all(|&count| count == SIZE), "{seen:?}");
    assert_eq!(seen.len(), usize::try_from(ROUNDS).unwrap() * 3);
    place.until_no_watches().await;
    // The receipt is deleted in the background.
    place.until_children("/meet", 1).await;
    assert_eq!(place.children("/meet").await, ["members"]);
    assert!(place.children("/meet/members").await.is_empty());
}

async fn members_tell_who_is_missing(place: Place) {
    let looking = barrier(&place.client().await, 3);
    let nobody = looking.members().await.unwrap();
    assert_eq!(
        (nobody.missing(), nobody.is_open, nobody.round),
        (3, false, 0)
    );
    let mut entering = Vec::new();
    for number in 0..2 {
        let barrier = barrier(&place.client().await, 3).message(format!("worker {number}"));
        entering.push(tokio::spawn(async move { barrier.enter().await }));
        until_waiting(&place, number + 1, &entering.iter().collect::<Vec<_>>()).await;
    }
    let two = looking.members().await.unwrap();
    assert_eq!((two.missing(), two.is_open), (1, false));
    let names: Vec<_> = two
        .here
        .iter()
        .filter_map(|who| who.message.as_deref())
        .collect();
    assert_eq!(names, ["worker 0", "worker 1"]);
    let inside = soon(looking.enter()).await.unwrap();
    let all = looking.members().await.unwrap();
    assert_eq!((all.missing(), all.is_open, all.here.len()), (0, true, 3));
    let mut inside = vec![inside];
    for entering in entering {
        inside.push(soon(entering).await.unwrap().unwrap());
    }
    leave_all(inside).await;
    let next = looking.members().await.unwrap();
    assert_eq!((next.missing(), next.is_open, next.round), (3, false, 1));
}

/// Wakes one of two members that wait for a third in every way there is. Returns whether it passes.
async fn passes_on_a_wake_up(place: &Place) -> bool {
    let other = place.client().await;
    let _first = enter_as(place, &other, 3, 1).await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let second = enter_as(place, &client, 3, 2).await;
    for _ in 0..3 {
        for name in place.children("/meet/members").await {
            let path = format!("/meet/members/{name}");
            place.outside().set(&path, b"{}", None).await.unwrap();
        }
        proxy.cut(Cut::Reset).await;
        // A round trip of the session: it is connected again, and has handled everything before.
        soon(client.raw().sync("/")).await.ok();
        soon(client.raw().sync("/")).await.unwrap();
        if second.is_finished() {
            return true;
        }
        until_waiting(place, 2, &[]).await;
    }
    let third = place.client().await;
    let third = enter(&third, 3);
    drop(soon(third).await.unwrap().unwrap());
    drop(soon(second).await.unwrap().unwrap());
    false
}

async fn t48_wake_up_that_is_not_the_word_lets_nobody_pass(place: Place) {
    assert!(!passes_on_a_wake_up(&place).await);
}

async fn t50_only_members_are_counted(place: Place) {
    let [(_, one), (_, two)] = two_inside(&place).await;
    leave_all([one, two]).await;
    let persistent = bellwether::zk::CreateMode::Persistent;
    let options = persistent.with_acl([bellwether::zk::Acl::open()]);
    for foreign in ["x", "ready-0000000001", "member-1"] {
        let path = format!("/meet/members/{foreign}");
        place.outside().create(&path, b"", &options).await.unwrap();
    }
    let (one, two) = (place.client().await, place.client().await);
    // The first waits for a second, whatever other nodes are there.
    let [first, second] = enter_both(&place, &one, &two).await;
    assert_eq!(barrier(&one, 2).members().await.unwrap().here.len(), 2);
    leave_all([first, second]).await;
}

async fn t51_leave_returns_with_one_too_many_and_at_its_limit(place: Place) {
    let [(_, one), (_, two)] = two_inside(&place).await;
    let late = place.client().await;
    let third = enter(&late, 2);
    let limit = Duration::from_millis(50);
    let left = one.leave_timeout(limit).await;
    assert_fails!(left, ErrorKind::TimedOut { .. });
    soon(two.leave()).await.unwrap();
    // The surplus member is first in the next round.
    let fourth = place.client().await;
    let fourth = soon(barrier(&fourth, 2).enter()).await.unwrap();
    let third = soon(third).await.unwrap().unwrap();
    assert_eq!((third.round(), fourth.round()), (1, 1));
    leave_all([third, fourth]).await;
}

async fn t52_what_wakes_those_who_enter_does_not_let_others_leave(place: Place) {
    let [(client, one), (_, two)] = two_inside(&place).await;
    let leaving = tokio::spawn(one.leave());
    place.until_children("/meet/members", 2).await;
    let inside = node(&two);
    let until_leaver_waits = async || {
        place
            .until_waits_for(&[&inside], client.session_id(), &leaving)
            .await;
    };
    until_leaver_waits().await;
    // A member that enters for the next round, and messages to the one inside.
    let late = place.client().await;
    let third = enter(&late, 2);
    for data in [b"a", b"b"] {
        place.outside().set(&inside, data, None).await.unwrap();
        // The message has fired the watch; the leaving member has looked again once there is another watch.
        until_leaver_waits().await;
    }
    soon(two.leave()).await.unwrap();
    soon(leaving).await.unwrap().unwrap();
    third.abort();
}

async fn t55_one_who_comes_late_enters_the_next_round(place: Place) {
    let [(_, one), (_, two)] = two_inside(&place).await;
    let client = place.client().await;
    let late = enter(&client, 2);
    // It has found the round full when it waits for the members inside to leave.
    let inside = [node(&one), node(&two)];
    place
        .until_waits_for(&[&inside[0], &inside[1]], client.session_id(), &late)
        .await;
    leave_all([one, two]).await;
    let client = place.client().await;
    let fourth = soon(barrier(&client, 2).enter()).await.unwrap();
    let late = soon(late).await.unwrap().unwrap();
    assert_eq!((late.round(), fourth.round()), (1, 1));
    leave_all([late, fourth]).await;
}

async fn t57_quick_member_enters_the_next_round_while_a_slow_one_leaves(place: Place) {
    let (proxy, slow) = place.proxied(SESSION_TIMEOUT).await;
    let slow = barrier(&slow, 2);
    let client = place.client().await;
    let quick = barrier(&client, 2);
    let entering = tokio::spawn({
        let slow = slow.clone();
        async move { slow.enter().await }
    });
    let inside = soon(quick.enter()).await.unwrap();
    let slow_inside = soon(entering).await.unwrap().unwrap();
    // The slow member has left, but does not learn it.
    proxy.hold(Direction::ToClient);
    let leaving = tokio::spawn(slow_inside.leave());
    soon(inside.leave()).await.unwrap();
    let entering = tokio::spawn(async move { quick.enter().await });
    place.until_children("/meet/members", 1).await;
    let own = format!("/meet/members/{}", place.children("/meet/members").await[0]);
    place
        .until_waits_for(&[&own], client.session_id(), &entering)
        .await;
    proxy.resume(Direction::ToClient);
    soon(leaving).await.unwrap().unwrap();
    let slow_inside = soon(slow.enter()).await.unwrap();
    let inside = soon(entering).await.unwrap().unwrap();
    assert_eq!((inside.round(), slow_inside.round()), (1, 1));
    leave_all([inside, slow_inside]).await;
}

async fn t58_one_too_many_waits_for_the_next_round(place: Place) {
    let mut entering = JoinSet::new();
    for _ in 0..7 {
        let barrier = barrier(&place.client().await, 2);
        entering.spawn(async move {
            let inside = barrier.enter().await.unwrap();
            let round = inside.round();
            let here = barrier.members().await.unwrap();
            assert!(here.round > round || here.here.len() <= 2, "{here:?}");
            inside.leave().await.unwrap();
            round
        });
    }
    let mut rounds = Vec::new();
    for _ in 0..6 {
        rounds.push(soon(entering.join_next()).await.unwrap().unwrap());
    }
    rounds.sort_unstable();
    assert_eq!(rounds, [0, 0, 1, 1, 2, 2]);
    // The seventh waits for an eighth.
    let eighth = place.client().await;
    let eighth = soon(barrier(&eighth, 2).enter()).await.unwrap();
    soon(eighth.leave()).await.unwrap();
    assert_eq!(soon(entering.join_next()).await.unwrap().unwrap(), 3);
}

/// Whether a request creates the node `ready` of a round.
fn is_announcement(request: &SeenRequest) -> bool {
    let mut parts = request.body.windows(b"/ready-".len());
    request.op == Op::Multi && parts.any(|part| part == b"/ready-")
}

async fn one_too_many_takes_the_place_of_one_who_gives_up(place: Place) {
    let (proxy, stuck) = place.proxied(SESSION_TIMEOUT).await;
    let client = place.client().await;
    let first = enter_as(&place, &client, 3, 1).await;
    let client = place.client().await;
    let second = enter_as(&place, &client, 3, 2).await;
    // The third member completes the round, and is cut off before it can announce that; the fourth is surplus.
    proxy.refuse(true);
    let cut_off = proxy.drop_request_where(is_announcement);
    let _third = enter(&stuck, 3);
    cut_off.happened().await.unwrap();
    let client = place.client().await;
    let fourth = enter(&client, 3);
    place.until_children("/meet/members", 4).await;
    // The session of the third expires, so the fourth takes its place.
    let mut inside = Vec::new();
    for entering in [first, second, fourth] {
        inside.push(soon(entering).await.unwrap().unwrap());
    }
    leave_all(inside).await;
}

async fn one_too_many_looks_at_its_place_and_not_at_the_number(place: Place) {
    let long = Duration::from_secs(60);
    let (slow_proxy, slow) = place.proxied(long).await;
    let slow = barrier(&slow, 3);
    // It knows the current round.
    let clients = [place.client().await, place.client().await];
    let others = clients.each_ref().map(|client| enter(client, 3));
    let mut inside = vec![soon(slow.enter()).await.unwrap()];
    for other in others {
        inside.push(soon(other).await.unwrap().unwrap());
    }
    leave_all(inside).await;

    let first = enter(&clients[0], 3);
    place.until_children("/meet/members", 1).await;
    let second = enter(&clients[1], 3);
    place.until_children("/meet/members", 2).await;
    // The third member would complete the round, and is cut off before it can announce that.
    let (third_proxy, third) = place.proxied(long).await;
    third_proxy.refuse(true);
    let cut_off = third_proxy.drop_request_where(is_announcement);
    let third = enter(&third, 3);
    cut_off.happened().await.unwrap();
    // The fourth is surplus, and learns it late: by then the second has left, and a fifth has entered.
    slow_proxy.hold(Direction::ToClient);
    let fourth = tokio::spawn(async move { slow.enter().await });
    place.until_children("/meet/members", 4).await;
    second.abort();
    place.until_children("/meet/members", 3).await;
    let client = place.client().await;
    let fifth = enter(&client, 3);
    place.until_children("/meet/members", 4).await;
    slow_proxy.resume(Direction::ToClient);
    let fourth = soon(fourth).await.unwrap().unwrap();
    let first = soon(first).await.unwrap().unwrap();
    third_proxy.refuse(false);
    let third = soon(third).await.unwrap().unwrap();
    leave_all([first, third, fourth]).await;
    // The fifth has found the round full, and keeps its place for the next.
    assert_eq!(place.children("/meet/members").await.len(), 1);
    fifth.abort();
}

async fn one_too_many_is_in_the_next_round_however_late_it_learns_of_it(place: Place) {
    let [(one, first), (two, second)] = two_inside(&place).await;
    let (proxy, slow) = place.proxied(Duration::from_secs(60)).await;
    let late = enter(&slow, 2);
    let inside = [node(&first), node(&second)];
    place
        .until_waits_for(&[&inside[0], &inside[1]], slow.session_id(), &late)
        .await;
    // It hears nothing while others pass as often as they can: the round that it is in cannot end without it.
    proxy.hold(Direction::ToClient);
    leave_all([first, second]).await;
    let third = soon(barrier(&one, 2).enter()).await.unwrap();
    assert_eq!(third.round(), 1);
    let fourth = enter(&two, 2);
    place.until_children("/meet/members", 4).await;
    proxy.resume(Direction::ToClient);
    let late = soon(late).await.unwrap().unwrap();
    assert_eq!(late.round(), 1);
    leave_all([late, third]).await;
    fourth.abort();
}

#[tokio::test]
async fn rounds_count_on_though_the_path_was_empty_for_long() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let alone = barrier(&client, 1);
    for round in 0..2 {
        let inside = alone.enter().await.unwrap();
        assert_eq!(inside.round(), round);
        inside.leave().await.unwrap();
    }
    // A node is created and deleted there.
    let raw = client.raw();
    let options = zk::CreateMode::Persistent.with_acl([zk::Acl::open()]);
    raw.create("/meet/members/guest", b"", &options)
        .await
        .unwrap();
    raw.delete("/meet/members/guest", None).await.unwrap();
    until_reaped(&server, &client, "/meet/members").await;
    // If the path were a container, it would be deleted by the time another container is.
    let other = Lock::new(&client, "/other").acquire().await.unwrap();
    other.release().await.unwrap();
    until_reaped(&server, &client, "/other").await;
    assert_eq!(soon(alone.enter()).await.unwrap().round(), 2);
}

async fn sizes_have_to_agree(place: Place) {
    let client = place.client().await;
    let entering = enter_as(&place, &client, 2, 1).await;
    let other = soon(barrier(&client, 3).enter()).await;
    assert_fails!(
        other,
        ErrorKind::InUse(OtherUse::Members { theirs: 2, ours: 3 })
    );
    entering.abort();
    for size in [0, 1_000_000] {
        let bad = barrier(&client, size).enter().await;
        assert_fails!(bad, ErrorKind::BadSize { .. });
    }
}

#[tokio::test]
async fn serves_programs_without_async() {
    let place = Place::embedded().await;
    let address = format!("{}{}", place.server(), place.chroot());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let address = address.clone();
            tokio::task::spawn_blocking(move || {
                let client = connect(address).wait().unwrap();
                let inside = barrier(&client, 2).enter().wait().unwrap();
                inside.leave().wait().unwrap();
            })
        })
        .collect();
    for thread in threads {
        soon(thread).await.unwrap();
    }
}
