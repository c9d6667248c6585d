//! Many tasks of one process in one line.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Client, HoldState, Lock, LockGuard, connect};
use bellwether_testkit::{Op, TestServer};
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use crate::support::place::{Place, soon};

on_both_engines! {
    line_of_one_session_is_listed_a_few_times,
    contenders_of_two_sessions_are_served_in_the_servers_order,
    those_who_leave_hold_nobody_up,
    node_that_another_hand_removed_gets_no_turn,
}

const PATH: &str = "/crowd";

/// Tasks that acquire a lock in turn, and the order in which they have held it.
#[derive(Default)]
struct Crowd {
    tasks: JoinSet<()>,
    order: Arc<Mutex<Vec<usize>>>,
}

/// Queues tasks behind a holder, in order, and returns them when all have a node.
async fn line_up(place: &Place, clients: &[Client], count: usize) -> (LockGuard, Crowd) {
    let holder = Lock::new(&place.client().await, PATH)
        .acquire()
        .await
        .unwrap();
    let mut crowd = Crowd::default();
    for index in 0..count {
        let lock = Lock::new(&clients[index % clients.len()], PATH);
        let order = crowd.order.clone();
        crowd.tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(guard.state(), HoldState::Held);
            // While it is held: the next holder may get its lock before this one learns of its release.
            order.lock().unwrap().push(index);
            guard.release().await.unwrap();
        });
        if clients.len() > 1 {
            // Each session sends on a connection of its own.
            place.until_children(PATH, index + 2).await;
        }
    }
    place.until_children(PATH, count + 1).await;
    (holder, crowd)
}

async fn finish(holder: LockGuard, mut crowd: Crowd) -> Vec<usize> {
    holder.release().await.unwrap();
    while let Some(done) = soon(crowd.tasks.join_next()).await {
        done.unwrap();
    }
    mem::take(&mut *crowd.order.lock().unwrap())
}

async fn line_of_one_session_is_listed_a_few_times(place: Place) {
    let (counting, client) = place.counted().await;
    let (holder, crowd) = line_up(&place, &[client], 300).await;
    let order = finish(holder, crowd).await;
    assert_eq!(order.len(), 300);
    let lists = counting.count(Op::GetChildren);
    assert!(lists <= 30, "{lists} lists for 300 tasks");
}

async fn contenders_of_two_sessions_are_served_in_the_servers_order(place: Place) {
    let clients = [
        place.client().await,
        place.client().await,
        place.client().await,
    ];
    let (holder, crowd) = line_up(&place, &clients, 12).await;
    let order = finish(holder, crowd).await;
    assert!(order.is_sorted(), "{order:?}");
}

async fn those_who_leave_hold_nobody_up(place: Place) {
    let client = place.client().await;
    let holder = Lock::new(&client, PATH).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for index in 0..20 {
        let lock = Lock::new(&client, PATH);
        tasks.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        place.until_children(PATH, index + 2).await;
    }
    // The first one, some in between and the last one.
    for index in [0, 3, 4, 5, 11, 19] {
        tasks[index].abort();
    }
    place.until_children(PATH, 15).await;
    let holder_token = holder.token();
    holder.release().await.unwrap();
    let mut last = holder_token;
    for (index, task) in tasks.into_iter().enumerate() {
        match soon(task).await {
            Ok(guard) => {
                assert!(guard.token() > last, "{index} was not in order");
                last = guard.token();
                soon(guard.release()).await.unwrap();
            }
            Err(error) => assert!(error.is_cancelled()),
        }
    }
    place.until_children(PATH, 0).await;
}

async fn node_that_another_hand_removed_gets_no_turn(place: Place) {
    let client = place.client().await;
    let holder = Lock::new(&client, PATH).acquire().await.unwrap();
    let mut tasks = Vec::new();
    let mut nodes = place.children(PATH).await;
    for index in 0..4 {
        let lock = Lock::new(&client, PATH);
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
        place.until_children(PATH, index + 2).await;
        let now = place.children(PATH).await;
        let new = now.into_iter().find(|name| !nodes.contains(name));
        nodes.push(new.unwrap());
    }
    for removed in [2, 3] {
        let node = format!("{PATH}/{}", nodes[removed]);
        place.outside().delete(&node, None).await.unwrap();
    }
    let first = {
        holder.release().await.unwrap();
        soon(&mut tasks[0]).await.unwrap().unwrap()
    };
    for removed in [1, 2] {
        let refused = soon(&mut tasks[removed]).await.unwrap();
        assert!(refused.is_err(), "{refused:?}");
    }
    first.release().await.unwrap();
    drop(soon(&mut tasks[3]).await.unwrap().unwrap());
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
    while idle.raw().children(PATH).await.unwrap().len() < tasks {}
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
