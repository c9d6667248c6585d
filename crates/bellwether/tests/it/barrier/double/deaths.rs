//! Members that give up, die, or lose a message.

use std::time::Duration;

use bellwether::{ErrorKind, Lock};
use bellwether_testkit::{Cut, SeenRequest};
use bellwether_wire::op::Op;

use super::{
    barrier, enter_as, enter_both, is_announcement, leave_all, node, two_inside, until_waiting,
};
use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    t49_enter_that_timed_out_leaves_no_member,
    t53_session_loss_is_told_to_one_who_enters,
    t54_others_wait_still_when_the_first_member_dies,
    t56_round_whose_members_have_died_lets_nobody_pass,
    t59_nothing_is_left_and_expiry_is_told_to_one_who_leaves,
    t60_own_node_missing_on_leave_is_an_error,
    enter_dropped_at_any_moment_leaves_no_member,
    member_who_gave_up_and_comes_again_counts_once,
    lost_requests_and_replies_change_nothing,
    others_leave_when_the_last_one_inside_dies,
}

async fn t49_enter_that_timed_out_leaves_no_member(place: Place) {
    let client = place.client().await;
    for _ in 0..10 {
        let limit = Duration::from_millis(20);
        let entered = barrier(&client, 2).enter_timeout(limit).await;
        assert_fails!(entered, ErrorKind::TimedOut { .. });
    }
    place.until_children("/meet/members", 0).await;
    place.until_no_watches().await;
    // A single member does not pass with a phantom.
    let [(_, one), (_, two)] = two_inside(&place).await;
    assert_eq!((one.round(), two.round()), (0, 0));
    leave_all([one, two]).await;
}

async fn t53_session_loss_is_told_to_one_who_enters(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let entering = enter_as(&place, &client, 2, 1).await;
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    let entered = soon(entering).await.unwrap();
    assert_fails!(entered, ErrorKind::SessionEnded);
}

async fn t54_others_wait_still_when_the_first_member_dies(place: Place) {
    let (proxy, dying) = place.proxied(SESSION_TIMEOUT).await;
    let _first = enter_as(&place, &dying, 3, 1).await;
    let (second_proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let second = enter_as(&place, &client, 3, 2).await;
    kill(&proxy).await;
    place.until_children("/meet/members", 1).await;
    until_waiting(&place, 1, &[&second]).await;
    let (third_proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let third = enter_as(&place, &client, 3, 2).await;
    until_waiting(&place, 2, &[&second, &third]).await;
    let leaver = place.client().await;
    let leaves = soon(barrier(&leaver, 3).enter()).await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    let third = soon(third).await.unwrap().unwrap();
    // The same on the way out: a member that dies inside counts as left; the others wait for each other.
    let leaving = tokio::spawn(leaves.leave());
    let nodes = [node(&second), node(&third)];
    let watched = place
        .until_waits_for(&[&nodes[0], &nodes[1]], leaver.session_id(), &leaving)
        .await;
    let (proxy, _dies, stays) = match watched == nodes[0] {
        true => (second_proxy, second, third),
        false => (third_proxy, third, second),
    };
    kill(&proxy).await;
    place
        .until_waits_for(&[&node(&stays)], leaver.session_id(), &leaving)
        .await;
    soon(stays.leave()).await.unwrap();
    soon(leaving).await.unwrap().unwrap();
}

async fn t56_round_whose_members_have_died_lets_nobody_pass(place: Place) {
    let (first_proxy, first) = place.proxied(SESSION_TIMEOUT).await;
    let (second_proxy, second) = place.proxied(SESSION_TIMEOUT).await;
    let _inside = enter_both(&place, &first, &second).await;
    kill(&first_proxy).await;
    kill(&second_proxy).await;
    place.until_children("/meet/members", 1).await;
    assert_eq!(place.children("/meet/members").await, ["ready-0"]);
    // The next member waits for another.
    let (one, two) = (place.client().await, place.client().await);
    let [one, two] = enter_both(&place, &one, &two).await;
    assert_eq!((one.round(), two.round()), (1, 1));
    leave_all([one, two]).await;
}

async fn t59_nothing_is_left_and_expiry_is_told_to_one_who_leaves(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let other = place.client().await;
    let first = enter_as(&place, &client, 2, 1).await;
    let stays = soon(barrier(&other, 2).enter()).await.unwrap();
    let first = soon(first).await.unwrap().unwrap();
    let leaving = tokio::spawn(first.leave());
    place.until_children("/meet/members", 2).await;
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    let left = soon(leaving).await.unwrap();
    assert_fails!(left, ErrorKind::SessionEnded);
    soon(stays.leave()).await.unwrap();
    place.until_no_watches().await;
    // The receipt is deleted in the background.
    place.until_children("/meet", 1).await;
    assert_eq!(place.children("/meet").await, ["members"]);
}

async fn t60_own_node_missing_on_leave_is_an_error(place: Place) {
    let [(_, one), (_, two)] = two_inside(&place).await;
    let path = format!("/meet/members/{}", one.node());
    place.outside().delete(&path, None).await.unwrap();
    soon(one.lost()).await;
    let left = soon(one.leave()).await;
    assert_fails!(left, ErrorKind::Removed);
    soon(two.leave()).await.unwrap();
    // The same for a member that enters.
    let client = place.client().await;
    let entering = enter_as(&place, &client, 2, 1).await;
    let name = &place.children("/meet/members").await[0];
    let path = format!("/meet/members/{name}");
    place.outside().delete(&path, None).await.unwrap();
    let entered = soon(entering).await.unwrap();
    assert_fails!(entered, ErrorKind::Removed);
}

async fn enter_dropped_at_any_moment_leaves_no_member(place: Place) {
    let client = place.client().await;
    let barrier = barrier(&client, 2);
    for micros in (0..4_000).step_by(200) {
        let limit = Duration::from_micros(micros);
        assert!(barrier.enter_timeout(limit).await.is_err());
    }
    let [(_, one), (_, two)] = two_inside(&place).await;
    leave_all([one, two]).await;
    place.until_no_watches().await;
}

async fn member_who_gave_up_and_comes_again_counts_once(place: Place) {
    let client = place.client().await;
    let mut holds = Vec::new();
    for number in 0..50 {
        let lock = Lock::new(&client, format!("/locks/{number}"));
        holds.push(lock.acquire().await.unwrap());
    }
    let meet = barrier(&client, 2);
    let mut entering = Box::pin(meet.enter());
    tokio::select! {
        entered = &mut entering => panic!("{entered:?}"),
        () = place.until_children("/meet/members", 1) => {}
    }
    // So many deletes are queued before that of its node that the node would still be there.
    drop(holds);
    drop(entering);
    let again = enter_as(&place, &client, 2, 1).await;
    let other = place.client().await;
    let other = soon(barrier(&other, 2).enter()).await.unwrap();
    let again = soon(again).await.unwrap().unwrap();
    assert_eq!((again.round(), other.round()), (0, 0));
    leave_all([again, other]).await;
}

async fn lost_requests_and_replies_change_nothing(place: Place) {
    let (proxy, faulty) = place.proxied(SESSION_TIMEOUT).await;
    let (faulty, steady) = (barrier(&faulty, 2), barrier(&place.client().await, 2));
    let [(_, one), (_, two)] = two_inside(&place).await;
    leave_all([one, two]).await;
    let mut round = 1;
    let is_wanted: [fn(&SeenRequest) -> bool; 6] = [
        |request| request.op == Op::Multi && !is_announcement(request),
        |request| request.op == Op::GetChildren,
        |request| request.op == Op::Exists,
        |request| request.op == Op::GetData,
        is_announcement,
        |request| request.op == Op::Delete,
    ];
    for (number, is_wanted) in is_wanted.into_iter().enumerate() {
        for swallowed in [true, false] {
            // Once as the member that completes the round, once as a member that waits.
            for last in [true, false] {
                let fault = match swallowed {
                    true => proxy.swallow_reply_where(is_wanted),
                    false => proxy.drop_request_where(is_wanted),
                };
                let (first, second) = if last {
                    (&steady, &faulty)
                } else {
                    (&faulty, &steady)
                };
                let entering = tokio::spawn({
                    let first = first.clone();
                    async move { first.enter().await }
                });
                place.until_children("/meet/members", 1).await;
                let second = soon(second.enter()).await.unwrap();
                let first = soon(entering).await.unwrap().unwrap();
                assert_eq!((first.round(), second.round()), (round, round), "{number}");
                leave_all([first, second]).await;
                drop(fault);
                round += 1;
            }
        }
    }
    place.until_no_watches().await;
}

async fn others_leave_when_the_last_one_inside_dies(place: Place) {
    let (proxy, dying) = place.proxied(SESSION_TIMEOUT).await;
    let [one, _dies] = enter_both(&place, &place.client().await, &dying).await;
    let leaving = tokio::spawn(one.leave());
    place.until_children("/meet/members", 2).await;
    kill(&proxy).await;
    soon(leaving).await.unwrap().unwrap();
    // The receipt is deleted in the background.
    place.until_children("/meet", 1).await;
    assert_eq!(place.children("/meet").await, ["members"]);
}
