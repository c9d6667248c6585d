//! Many tasks of one process in one line.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Client, HoldState, Lock, connect};
use bellwether_testkit::{Op, TestServer};
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use crate::support::place::{Place, soon};

on_both_engines! {
    two_tasks_of_a_session_have_a_node,
    sessions_take_turns,
    those_who_leave_hold_nobody_up,
    tasks_without_a_node_hear_of_the_end_of_their_session,
    lost_guard_in_scope_keeps_no_slot,
    t90_lost_guard_hides_no_later_holder,
}

const PATH: &str = "/crowd";

/// Tasks that acquire a lock in turn, and the order in which they have held it.
#[derive(Default)]
struct Crowd {
    tasks: JoinSet<()>,
    order: Arc<Mutex<Vec<usize>>>,
}

impl Crowd {
    fn join(&mut self, client: &Client, index: usize) {
        let lock = Lock::new(client, PATH);
        let order = self.order.clone();
        self.tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(guard.state(), HoldState::Held);
            // While it is held: the next holder may get its lock before this one learns of its release.
            order.lock().unwrap().push(index);
            guard.release().await.unwrap();
        });
    }

    /// Waits until all tasks have held the lock. Returns their order.
    async fn finish(mut self) -> Vec<usize> {
        while let Some(done) = soon(self.tasks.join_next()).await {
            done.unwrap();
        }
        mem::take(&mut *self.order.lock().unwrap())
    }
}

/// A slot limits nodes, and so the bytes of lists and watches, whatever the number of tasks.
async fn two_tasks_of_a_session_have_a_node(place: Place) {
    let (counting, client) = place.counted().await;
    let holder = Lock::new(&place.client().await, PATH);
    let holder = holder.acquire().await.unwrap();
    let mut crowd = Crowd::default();
    for index in 0..300 {
        crowd.join(&client, index);
    }
    place.until_children(PATH, 3).await;
    // Behind the others: a third node would have been made by now.
    let outsider = Lock::new(&client, PATH).join().await.unwrap();
    assert_eq!(place.children(PATH).await.len(), 4);
    drop(outsider);
    holder.release().await.unwrap();
    assert_eq!(crowd.finish().await.len(), 300);
    assert_eq!(counting.count(Op::Create2), 301);
    let lists = counting.count(Op::GetChildren);
    // One with each node, and one more where a waiter of another session was ahead.
    assert!(lists <= 310, "{lists} lists for 300 tasks");
}

/// Within a session in the order of the calls, and between sessions in turns.
async fn sessions_take_turns(place: Place) {
    let clients = [place.client().await, place.client().await];
    let holder = Lock::new(&place.client().await, PATH);
    let holder = holder.acquire().await.unwrap();
    let mut crowd = Crowd::default();
    for index in 0..6 {
        crowd.join(&clients[0], index);
        // Tasks of one session ask in the order in which they are first polled.
        place.until_children(PATH, (index + 2).min(3)).await;
        soon(clients[0].raw().sync("/")).await.unwrap();
    }
    for index in 10..12 {
        crowd.join(&clients[1], index);
        place.until_children(PATH, index - 6).await;
    }
    holder.release().await.unwrap();
    let order = crowd.finish().await;
    assert_eq!(order[..2], [0, 1]);
    let of = |first: usize| {
        order
            .iter()
            .copied()
            .filter(move |index| index / 10 == first)
    };
    assert!(of(1).eq([10, 11]), "{order:?}");
    assert_eq!(of(0).count(), 6);
    // The second session did not wait for all tasks of the first.
    assert!(
        order.iter().position(|&index| index == 11) <= Some(5),
        "{order:?}"
    );
}

async fn those_who_leave_hold_nobody_up(place: Place) {
    let client = place.client().await;
    let holder = Lock::new(&client, PATH).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let lock = Lock::new(&client, PATH);
        tasks.push(tokio::spawn(async move {
            lock.acquire().await.unwrap().release().await.unwrap();
        }));
    }
    place.until_children(PATH, 2).await;
    // One of them may have a node, and the others wait for a slot.
    for index in [0, 1, 3, 4, 5, 11, 19] {
        tasks[index].abort();
    }
    holder.release().await.unwrap();
    let mut left = 0;
    for task in tasks {
        left += usize::from(soon(task).await.is_err_and(|error| error.is_cancelled()));
    }
    assert_eq!(left, 7);
    place.until_children(PATH, 0).await;
}

async fn tasks_without_a_node_hear_of_the_end_of_their_session(place: Place) {
    let client = place.client().await;
    let holder = Lock::new(&place.client().await, PATH);
    let holder = holder.acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let lock = Lock::new(&client, PATH);
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
    }
    place.until_children(PATH, 3).await;
    soon(client.close()).await;
    for task in tasks {
        let ended = soon(task).await.unwrap();
        assert!(ended.is_err(), "{ended:?}");
    }
    drop(holder);
}

async fn lost_guard_in_scope_keeps_no_slot(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, PATH);
    let mut lost = Vec::new();
    for _ in 0..2 {
        let guard = lock.acquire().await.unwrap();
        let node = format!("{PATH}/{}", guard.node());
        place.outside().delete(&node, None).await.unwrap();
        soon(guard.lost()).await;
        lost.push(guard);
    }
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

/// A guard that is lost and still in scope, a directory that was made again, and a holder in another session.
async fn t90_lost_guard_hides_no_later_holder(place: Place) {
    let (ours, theirs) = (place.client().await, place.client().await);
    let (lock, foreign) = (Lock::new(&ours, PATH), Lock::new(&theirs, PATH));
    // Numbers restart in the new directory: the lost guard has a higher one than the next holder.
    drop(lock.acquire().await.unwrap());
    let lost = lock.acquire().await.unwrap();
    place
        .outside()
        .delete(&format!("{PATH}/{}", lost.node()), None)
        .await
        .unwrap();
    soon(lost.lost()).await;
    place.until_children(PATH, 0).await;
    place.outside().delete(PATH, None).await.unwrap();
    let holder = foreign.acquire().await.unwrap();
    drop(foreign.join().await.unwrap());
    place.until_children(PATH, 1).await;
    let is_released = Arc::new(AtomicBool::new(false));
    let waiter = tokio::spawn({
        let is_released = is_released.clone();
        async move {
            let guard = lock.acquire().await.unwrap();
            (guard, is_released.load(Ordering::SeqCst))
        }
    });
    place.until_children(PATH, 2).await;
    // Behind the create and the list of the waiter, in its own session.
    soon(ours.raw().sync(PATH)).await.unwrap();
    is_released.store(true, Ordering::SeqCst);
    holder.release().await.unwrap();
    let (next, was_released) = soon(waiter).await.unwrap();
    assert!(was_released, "two holders: {next:?}");
    drop(lost);
}

/// Lets tasks of one session queue for one lock, with other holds beside them, and returns the time per hand-over.
async fn crowd(tasks: usize, others: usize) -> Duration {
    let server = TestServer::start().await.unwrap();
    let session = || {
        let session = connect(server.connect_string());
        session
            .session_timeout(Duration::from_secs(4))
            .into_future()
    };
    let (crowded, idle) = (session().await.unwrap(), session().await.unwrap());
    let holds = (0..others).map(|number| {
        let client = if number % 2 == 0 { &crowded } else { &idle };
        let lock = Lock::new(client, format!("/others/{number}"));
        async move { lock.acquire().await }
    });
    let holds = try_join_all(holds).await.unwrap();
    let first = Lock::new(&crowded, PATH).acquire().await.unwrap();
    let mut line = JoinSet::new();
    for _ in 1..tasks {
        let lock = Lock::new(&crowded, PATH);
        line.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    // The holder and one more: the others wait for a slot.
    while idle.raw().children(PATH).await.unwrap().len() < 2 {}
    let began = Instant::now();
    first.release().await.unwrap();
    while let Some(done) = line.join_next().await {
        done.unwrap();
    }
    let time = began.elapsed() / u32::try_from(tasks).unwrap();
    for hold in &holds {
        assert_eq!(hold.state(), HoldState::Held);
    }
    time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_costs_no_hold_beside_it() {
    crowd(1_000, 20).await;
}

/// The same with the maximum length of a line, and the time of a hand-over compared with a short line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute; for its figures run it alone, in release"]
async fn ten_thousand_tasks_cost_no_hold_beside_them() {
    let few = crowd(10, 100).await;
    let many = crowd(10_000, 100).await;
    println!("a hand-over takes {few:?} among 10 tasks, {many:?} among 10,000");
}
