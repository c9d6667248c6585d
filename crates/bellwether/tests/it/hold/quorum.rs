//! Holds in an ensemble of real servers that loses its leader, or its quorum.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Lock, connect};
use bellwether_testkit::{Ensemble, RawClient, Request};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::support::place::soon;

/// Followers answer their clients for five seconds after they were cut off, which is longer than T.
#[tokio::test(flavor = "multi_thread")]
async fn every_holder_in_an_ensemble_without_quorum_is_told_before_the_next_grant() {
    const T: Duration = Duration::from_secs(4);
    let ensemble = Ensemble::start(3).await.unwrap();
    let mut guards = Vec::new();
    let mut next = Vec::new();
    for member in 0..3 {
        let address = ensemble.address(member).to_string();
        let holder = connect(address).session_timeout(T).await.unwrap();
        let path = format!("/lock-{member}");
        let guard = soon(Lock::new(&holder, &path).acquire()).await.unwrap();
        // On another member, with a session that outlives the outage.
        let other = ensemble.address((member + 1) % 3).to_string();
        let other = connect(other).session_timeout(T * 5).await.unwrap();
        next.push(tokio::spawn(async move {
            let guard = Lock::new(&other, &path).acquire().await.unwrap();
            (Instant::now(), guard)
        }));
        let line = format!("/lock-{member}");
        soon(async { while holder.raw().children(&line).await.unwrap().len() < 2 {} }).await;
        guards.push(guard);
    }
    // Each member is alone.
    for member in 0..3 {
        ensemble.partition(&[member]);
    }
    let cut = Instant::now();
    let lost = guards.iter().map(|guard| async {
        guard.lost().await;
        Instant::now()
    });
    let lost = soon(join_all(lost)).await;
    for lost in &lost {
        assert!(*lost - cut < T, "lost after {:?}", *lost - cut);
    }
    // The outage lasts longer than T.
    timeout(T, pending::<()>()).await.unwrap_err();
    assert!(next.iter().all(|next| !next.is_finished()));
    // Their sessions may survive the outage, and keep holds that are not released.
    drop(guards);
    ensemble.heal();
    for (lost, next) in lost.into_iter().zip(next) {
        let (granted, _guard) = soon(next).await.unwrap();
        assert!(lost < granted, "lost {:?} late", lost - granted);
    }
}

/// No hold is lost, and the time without a hand-over is about that of Apache's own failover.
#[tokio::test(flavor = "multi_thread")]
async fn hand_overs_in_an_ensemble_continue_when_its_leader_is_killed() {
    const T: Duration = Duration::from_secs(10);
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let grants = Arc::new(Mutex::new(Vec::new()));
    let mut contenders = Vec::new();
    for _ in 0..2 {
        let session = connect(ensemble.connect_string()).session_timeout(T);
        let (client, grants) = (session.await.unwrap(), Arc::clone(&grants));
        contenders.push((
            client.clone(),
            tokio::spawn(async move {
                let lock = Lock::new(&client, "/lock");
                loop {
                    let guard = lock.acquire().await.unwrap();
                    grants.lock().unwrap().push(Instant::now());
                    guard.release().await.unwrap();
                }
            }),
        ));
    }
    let sessions: Vec<_> = contenders
        .iter()
        .map(|(client, _)| client.session_id())
        .collect();
    let granted_since = async |since: Instant| {
        let count = || {
            grants
                .lock()
                .unwrap()
                .iter()
                .filter(|at| **at > since)
                .count()
        };
        soon(async {
            while count() < 20 {
                tokio::task::yield_now().await
            }
        })
        .await;
    };
    granted_since(Instant::now()).await;

    ensemble.kill(leader);
    let killed = Instant::now();
    // Apache's own failover: until another member accepts a write.
    let others = [1, 2].map(|more| ensemble.address((leader + more) % 3));
    let failover = soon(async {
        loop {
            for address in others {
                let write = async {
                    let mut client = RawClient::connect(address).await?;
                    client.call(Request::create("/probe", "")).await?.ok()
                };
                if let Ok(Ok(_)) = timeout(Duration::from_secs(1), write).await {
                    return killed.elapsed();
                }
            }
        }
    })
    .await;
    granted_since(killed + failover).await;
    let grants = grants.lock().unwrap().clone();
    let gap = grants
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap();
    eprintln!("no hand-over for {gap:?}, failover of the servers in {failover:?}");
    assert!(
        gap < failover + T / 2,
        "{gap:?} with a failover of {failover:?}"
    );
    for ((client, task), session) in contenders.iter().zip(sessions) {
        assert_eq!(client.session_id(), session, "no session was lost");
        assert!(!task.is_finished());
        task.abort();
    }
}
