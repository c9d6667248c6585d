//! Finding the own node again, and creating the directory again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::{Lock, connect, zk};
use bellwether_testkit::{Direction, TestServer};
use bellwether_wire::op::Op;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    t04_node_of_another_session_is_not_adopted,
    own_node_is_found_beside_another_of_its_name,
    t17_recovered_node_is_the_created_one,
}

async fn t04_node_of_another_session_is_not_adopted(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lock = Lock::new(&client, "/recovery");
    lock.acquire().await.unwrap().release().await.unwrap();
    // The create is lost, and when the contender looks for its node, there is one of that name from another session.
    let prefix = Arc::new(Mutex::new(None));
    let proxy = Arc::new(proxy);
    let lost = proxy.drop_request_where({
        let (prefix, proxy) = (prefix.clone(), proxy.clone());
        move |request| {
            let matches = request.op == Op::Create2;
            if matches {
                *prefix.lock().unwrap() = request.path();
                // It must not look before the other node exists.
                proxy.hold(Direction::ToServer);
            }
            matches
        }
    });
    let acquired = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    lost.happened().await.unwrap();
    let prefix = prefix.lock().unwrap().take().unwrap();
    let prefix = prefix.strip_prefix(place.chroot()).unwrap().to_owned();
    let options = zk::CreateMode::EphemeralSequential.with_acl([zk::Acl::open()]);
    let created = place.outside().create(&prefix, b"", &options).await;
    let stranger = created.unwrap().path;
    proxy.resume(Direction::ToServer);
    place.until_children("/recovery", 2).await;
    // It has its own node, and waits for the other like for any contender.
    assert!(lock.try_acquire().await.unwrap().is_none());
    place
        .until_waits_for(&[&stranger], client.session_id(), &acquired)
        .await;
    place.outside().delete(&stranger, None).await.unwrap();
    let guard = soon(acquired).await.unwrap().unwrap();
    assert!(!stranger.ends_with(guard.node()));
    guard.release().await.unwrap();
}

async fn own_node_is_found_beside_another_of_its_name(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lock = Lock::new(&client, "/recovery");
    lock.acquire().await.unwrap().release().await.unwrap();
    // The reply to the create is lost, and when the contender looks for its node, other sessions have nodes of that name too.
    proxy.refuse(true);
    let lost = proxy.swallow_reply(Op::Create2);
    let acquired = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    lost.happened().await.unwrap();
    let own = place.children("/recovery").await.remove(0);
    let (prefix, _) = own.split_at(own.len() - 10);
    let options = zk::CreateMode::EphemeralSequential.with_acl([zk::Acl::open()]);
    for _ in 0..3 {
        let path = format!("/recovery/{prefix}");
        place.outside().create(&path, b"", &options).await.unwrap();
    }
    proxy.refuse(false);
    let guard = soon(acquired).await.unwrap().unwrap();
    assert_eq!(guard.node(), own);
    assert_eq!(place.children("/recovery").await.len(), 4);
    guard.release().await.unwrap();
}

async fn t17_recovered_node_is_the_created_one(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lock = Lock::new(&client, "/recovery");
    for _ in 0..3 {
        let lost = proxy.swallow_reply(Op::Create2);
        let guard = soon(lock.acquire()).await.unwrap();
        lost.happened().await.unwrap();
        assert_eq!(place.children("/recovery").await, [guard.node()]);
        guard.release().await.unwrap();
        assert!(place.children("/recovery").await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_directory_reaped_at_any_time_is_made_anew() {
    let server = Arc::new(TestServer::start().await.unwrap());
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let client = connect(server.connect_string()).await.unwrap();
        tasks.spawn(async move {
            let lock = Lock::new(&client, "/deep/in/here");
            for _ in 0..200 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    let reaper = tokio::spawn({
        let server = server.clone();
        async move {
            // Thousands of times as often as a server would, but not so often that no directory lives long enough to be used.
            let mut turns = tokio::time::interval(Duration::from_millis(2));
            // Not several at once after a delay.
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                turns.tick().await;
                server.reap_now().unwrap();
            }
        }
    });
    soon(tasks.join_all()).await;
    reaper.abort();
}
