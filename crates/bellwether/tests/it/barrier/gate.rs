//! The barrier.

use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::{Barrier, Client, Error, ErrorKind, connect};
use bellwether_testkit::Cut;
use bellwether_wire::op::Op;
use tokio::task::JoinHandle;

use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    all_pass_when_it_is_lifted_and_not_before,
    one_who_comes_late_passes_at_once,
    set_and_lift_tell_who_was_first,
    wake_up_that_is_no_lift_lets_nobody_pass,
    lifted_while_the_waiter_is_cut_off,
    lifted_and_set_anew_while_the_waiter_is_cut_off,
    t59_waiter_whose_session_ends_is_told,
    t59_waits_that_timed_out_leave_no_watches,
    set_whose_reply_was_lost_does_not_come_back,
    lift_whose_reply_was_lost_spares_the_next,
    request_that_did_not_arrive_is_sent_again,
    bad_path_is_refused,
}

type Waiter = JoinHandle<Result<(), Error>>;

fn waiter(client: &Client) -> Waiter {
    let barrier = Barrier::new(client, "/gate");
    tokio::spawn(async move { barrier.wait().await })
}

/// Waits until as many watches are armed as there are waiters, so that all have looked. Returns whether one has passed before that.
async fn has_passed(place: &Place, waiters: &[&Waiter]) -> bool {
    soon(async {
        loop {
            if waiters.iter().any(|waiter| waiter.is_finished()) {
                return true;
            }
            if place.watches().await == waiters.len() {
                return false;
            }
        }
    })
    .await
}

async fn all_pass_when_it_is_lifted_and_not_before(place: Place) {
    let gate = Barrier::new(&place.client().await, "/gate").message("migration");
    assert!(gate.set().await.unwrap());
    let clients = [place.client().await, place.client().await];
    let waiters = clients.each_ref().map(waiter);
    assert!(!has_passed(&place, &waiters.each_ref()).await);
    let set_by = gate.set_by().await.unwrap().unwrap();
    assert_eq!(set_by.message.as_deref(), Some("migration"));
    assert!(gate.lift().await.unwrap());
    for waiter in waiters {
        soon(waiter).await.unwrap().unwrap();
    }
    assert_eq!(gate.set_by().await.unwrap(), None);
    place.until_children("/gate", 0).await;
    place.until_no_watches().await;
}

async fn one_who_comes_late_passes_at_once(place: Place) {
    let gate = Barrier::new(&place.client().await, "/gate");
    soon(gate.wait()).await.unwrap();
    gate.set().await.unwrap();
    gate.lift().await.unwrap();
    soon(gate.wait()).await.unwrap();
    place.until_no_watches().await;
}

async fn set_and_lift_tell_who_was_first(place: Place) {
    let gate = Barrier::new(&place.client().await, "/deep/down/gate");
    let other = Barrier::new(&place.client().await, "/deep/down/gate");
    assert!(!gate.lift().await.unwrap());
    assert!(gate.set().await.unwrap());
    assert!(!other.set().await.unwrap());
    assert!(other.lift().await.unwrap());
    assert!(!gate.lift().await.unwrap());
}

/// Wakes a waiter in every way except a lift.
async fn passes_on_a_wake_up(place: &Place) -> bool {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let gate = Barrier::new(&place.client().await, "/gate");
    gate.set().await.unwrap();
    let waiter = waiter(&client);
    if has_passed(place, &[&waiter]).await {
        return true;
    }
    let (node, proxied) = ("/gate/barrier", &proxy);
    for round in 0..3 {
        let written = place.outside().set(node, b"spurious", None).await;
        written.unwrap();
        if has_passed(place, &[&waiter]).await {
            return true;
        }
        // The connection is back, and the waiter has looked: it syncs each time.
        let asked = || proxied.count(Op::Sync);
        let before = asked();
        proxied.cut(Cut::Reset).await;
        soon(async {
            while asked() == before && !waiter.is_finished() {
                place.outside().sync("/").await.unwrap();
            }
        })
        .await;
        if has_passed(place, &[&waiter]).await {
            return true;
        }
        assert!(!waiter.is_finished(), "round {round}");
    }
    gate.lift().await.unwrap();
    soon(waiter).await.unwrap().unwrap();
    false
}

async fn wake_up_that_is_no_lift_lets_nobody_pass(place: Place) {
    assert!(!passes_on_a_wake_up(&place).await);
}

async fn lifted_while_the_waiter_is_cut_off(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let gate = Barrier::new(&place.client().await, "/gate");
    gate.set().await.unwrap();
    let waiter = waiter(&client);
    assert!(!has_passed(&place, &[&waiter]).await);
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    gate.lift().await.unwrap();
    proxy.refuse(false);
    soon(waiter).await.unwrap().unwrap();
    place.until_no_watches().await;
}

async fn lifted_and_set_anew_while_the_waiter_is_cut_off(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let gate = Barrier::new(&place.client().await, "/gate");
    gate.set().await.unwrap();
    let first = waiter(&client);
    assert!(!has_passed(&place, &[&first]).await);
    // Answered after the look of the waiter, which now knows which barrier it waits for.
    client.raw().sync("/").await.unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    gate.lift().await.unwrap();
    gate.set().await.unwrap();
    proxy.refuse(false);
    // The barrier that it waited for was lifted; the new one applies to later callers.
    soon(first).await.unwrap().unwrap();
    let second = waiter(&client);
    assert!(!has_passed(&place, &[&second]).await);
    second.abort();
}

async fn t59_waiter_whose_session_ends_is_told(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    Barrier::new(&place.client().await, "/gate")
        .set()
        .await
        .unwrap();
    let waiter = waiter(&client);
    assert!(!has_passed(&place, &[&waiter]).await);
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    let ended = soon(waiter).await.unwrap();
    assert_fails!(ended, ErrorKind::SessionEnded);
}

async fn t59_waits_that_timed_out_leave_no_watches(place: Place) {
    let gate = Barrier::new(&place.client().await, "/gate");
    gate.set().await.unwrap();
    for _ in 0..50 {
        let limit = Duration::from_millis(2);
        let waited = gate.wait_timeout(limit).await;
        assert_fails!(waited, ErrorKind::TimedOut { .. });
    }
    place.until_no_watches().await;
}

async fn set_whose_reply_was_lost_does_not_come_back(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let gate = Barrier::new(&client, "/gate");
    gate.set().await.unwrap();
    gate.lift().await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let set = tokio::spawn(async move { gate.set().await });
    lost.happened().await.unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    let other = Barrier::new(&place.client().await, "/gate");
    assert!(
        other.lift().await.unwrap(),
        "the reply was lost, not the request"
    );
    proxy.refuse(false);
    assert!(soon(set).await.unwrap().unwrap());
    assert_eq!(other.set_by().await.unwrap(), None);
}

async fn lift_whose_reply_was_lost_spares_the_next(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let gate = Barrier::new(&client, "/gate");
    gate.set().await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let lift = tokio::spawn(async move { gate.lift().await });
    lost.happened().await.unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    let other = Barrier::new(&place.client().await, "/gate");
    assert!(other.set().await.unwrap());
    proxy.refuse(false);
    assert!(soon(lift).await.unwrap().unwrap());
    assert!(other.set_by().await.unwrap().is_some());
}

async fn request_that_did_not_arrive_is_sent_again(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let gate = Barrier::new(&client, "/gate");
    // One for the request, and one for the directory that it then creates.
    for _ in 0..2 {
        drop(proxy.drop_request(Op::Multi));
    }
    assert!(soon(gate.set()).await.unwrap());
    drop(proxy.drop_request(Op::Multi));
    assert!(soon(gate.lift()).await.unwrap());
    drop(proxy.drop_request(Op::Sync));
    soon(gate.wait()).await.unwrap();
    place.until_children("/gate", 0).await;
}

async fn bad_path_is_refused(place: Place) {
    let gate = Barrier::new(&place.client().await, "gate/");
    for refused in [gate.set().await.map(drop), gate.wait().await] {
        assert_fails!(refused, ErrorKind::BadPath(_));
    }
}

#[tokio::test]
async fn serves_programs_without_async() {
    let place = Place::embedded().await;
    let address = format!("{}{}", place.server(), place.chroot());
    let task = tokio::task::spawn_blocking(move || {
        let client = connect(address).wait().unwrap();
        let gate = Barrier::new(&client, "/gate");
        assert!(gate.set().wait().unwrap());
        let passed = std::thread::spawn({
            let gate = gate.clone();
            move || gate.wait().wait().is_ok()
        });
        assert!(gate.lift().wait().unwrap());
        assert!(passed.join().unwrap());
    });
    soon(task).await.unwrap();
}
