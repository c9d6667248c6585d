//! Holds in an ensemble of real servers whose leader is paused or unreachable.

use std::time::{Duration, Instant};

use bellwether::{Client, Lock, LockGuard, connect};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Apache, Cut, Ensemble, FaultProxy, Op};
use futures_util::{StreamExt, stream};

use crate::support::place::{SESSION_TIMEOUT, soon};

#[tokio::test]
async fn only_writes_are_proof_of_life() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = (leader + 1) % 3;
    let proxy = FaultProxy::start(ensemble.address(follower)).await.unwrap();
    let client = connect(proxy.connect_string())
        .session_timeout(Duration::from_secs(3))
        .await
        .unwrap();
    let guard = soon(Lock::new(&client, "/lost").acquire()).await.unwrap();
    proxy.reset_counts();
    soon(async {
        while proxy.count(Op::Multi) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(guard.is_held(), "a quiet hold is kept by its heartbeat");
    assert_eq!(proxy.count(Op::Exists), 0, "a read would prove nothing");
    guard.release().await.unwrap();
    drop(client);
    ensemble.stop().await.unwrap();
}

/// While the leader is paused nothing is proven, and holds rely on earlier proofs.
#[tokio::test(flavor = "multi_thread")]
async fn hold_outlives_a_leader_that_is_paused_for_half_a_session_timeout() {
    const T: Duration = Duration::from_secs(20);
    // Followers wait 25 ticks for their leader: no election happens meanwhile.
    let tick = Duration::from_millis(600);
    let mut ensemble = Apache::builder().tick(tick).ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = ensemble.address((leader + 1) % 3);
    let client = connect(follower.to_string())
        .session_timeout(T)
        .await
        .unwrap();
    assert_eq!(client.session_timeout(), T);
    let guard = soon(Lock::new(&client, "/lock").acquire()).await.unwrap();
    // A new hold is valid for a shorter time, until the leader has heard from its session at the higher rate.
    let steady = client.outage_max();
    assert!(steady > T / 2, "{steady:?}");
    soon(async {
        while guard.time_left() < T * 59 / 100 {
            tokio::task::yield_now().await;
        }
    })
    .await;

    ensemble.pause(leader).unwrap();
    let paused = Instant::now();
    let lost = tokio::time::timeout(T / 2, guard.lost()).await;
    assert!(lost.is_err(), "lost after {:?}", paused.elapsed());
    ensemble.resume(leader).unwrap();
    // The validity at the start of the pause is over when the new proof arrives.
    soon(async {
        while guard.time_left() < T / 2 {
            assert!(guard.is_held(), "lost after {:?}", paused.elapsed());
            tokio::task::yield_now().await;
        }
    })
    .await;
    guard.release().await.unwrap();
}

/// The member keeps its connections open and answers nothing. Its clients move to the others in time.
#[tokio::test(flavor = "multi_thread")]
async fn t92_silent_member_of_an_ensemble_costs_none_of_a_hundred_clients_its_hold() {
    const T: Duration = Duration::from_secs(10);
    // Servers grant 20 ticks at most.
    let tick = Duration::from_millis(600);
    let mut ensemble = Apache::builder().tick(tick).ensemble(3).await.unwrap();
    let silent = (ensemble.leader().await.unwrap() + 1) % 3;
    let held = (0..100).map(|index| {
        let opened = connect(ensemble.connect_string()).session_timeout(T);
        async move {
            let client = opened.await.unwrap();
            assert_eq!(client.session_timeout(), T);
            let lock = Lock::new(&client, format!("/lock-{index}"));
            (lock.acquire().await.unwrap(), client)
        }
    });
    let held: Vec<_> = stream::iter(held).buffer_unordered(10).collect().await;
    let moved = |held: &[(LockGuard, Client)]| {
        let clients = held.iter().map(|(_, client)| client.raw().connections());
        clients.filter(|connections| *connections > 1).count()
    };
    assert_eq!(moved(&held), 0);
    // The proof of a new session lasts for longer than what the heartbeat proves.
    soon(async {
        let is_new = |guard: &LockGuard| guard.time_left() > T * 2 / 3;
        while held.iter().any(|(guard, _)| is_new(guard)) {
            tokio::task::yield_now().await;
        }
    })
    .await;

    ensemble.pause(silent).unwrap();
    let began = Instant::now();
    let lost = |held: &[(LockGuard, Client)]| {
        let lost = held.iter().filter(|(guard, _)| !guard.is_held()).count();
        assert_eq!(lost, 0, "lost after {:?}", began.elapsed());
    };
    // Proof that is older than the silence ends by then.
    let is_proven_since = |guard: &LockGuard| began.elapsed() + guard.time_left() > T;
    let mut last_move = (0, Duration::ZERO);
    soon(async {
        while !held.iter().all(|(guard, _)| is_proven_since(guard)) {
            lost(&held);
            let moved = moved(&held);
            if moved > last_move.0 {
                last_move = (moved, began.elapsed());
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    lost(&held);
    let (count, after) = last_move;
    eprintln!("{count} of 100 moved, the last after {after:?}");
    assert!(count > 0, "no client was connected to that member");
    ensemble.resume(silent).unwrap();
    ensemble.stop().await.unwrap();
}

/// The server keeps answering the holder, while the leader expires its session.
#[tokio::test(flavor = "multi_thread")]
async fn hold_behind_a_follower_that_is_cut_off_is_lost_before_the_next_grant() {
    let (lost, granted) = lost_behind_a_cut_off_follower().await;
    assert!(lost < granted, "lost {:?} late", lost - granted);
}

/// The session was opened on a single server. The proxy says so, until the connection is lost and the data has moved to the ensemble.
#[tokio::test(flavor = "multi_thread")]
async fn hold_that_moved_to_an_ensemble_is_lost_before_the_next_grant() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let proxy = FaultProxy::start(ensemble.address(0)).await.unwrap();
    // No data, and a Stat, before any election.
    let no_members = [0; 4 + 68];
    let single = proxy.answer_as(1, no_members.to_vec(), |request| {
        request.op == Op::GetData && request.path().as_deref() == Some("/zookeeper/config")
    });
    let opened = connect(proxy.connect_string()).session_timeout(SESSION_TIMEOUT);
    let client = opened.await.unwrap();
    single.happened().await.unwrap();
    assert!(!client.is_ensemble());
    let guard = soon(Lock::new(&client, "/lock").acquire()).await.unwrap();
    proxy.cut(Cut::Close).await;
    let asked = async {
        while !client.is_ensemble() {
            tokio::task::yield_now().await;
        }
    };
    // A client that does not ask loses the hold too late, which is the point.
    let _ = tokio::time::timeout(SESSION_TIMEOUT / 2, asked).await;
    assert!(guard.is_held(), "the move itself costs no hold");
    let (lost, granted) = lost_behind(&mut ensemble, &client, guard).await;
    assert!(lost < granted, "lost {:?} late", lost - granted);
}

/// When a hold was lost whose follower was cut off from its leader, and when the next one was granted.
async fn lost_behind_a_cut_off_follower() -> (Instant, Instant) {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let opened = connect(ensemble.address(0).to_string()).session_timeout(SESSION_TIMEOUT);
    let client = opened.await.unwrap();
    let guard = soon(Lock::new(&client, "/lock").acquire()).await.unwrap();
    lost_behind(&mut ensemble, &client, guard).await
}

/// As above, for a hold of a client of the first member.
async fn lost_behind(
    ensemble: &mut Ensemble,
    client: &Client,
    guard: LockGuard,
) -> (Instant, Instant) {
    let leader = ensemble.leader().await.unwrap();
    assert_ne!(leader, 0, "the one that is cut off follows");
    let next = connect(ensemble.address(leader).to_string()).await.unwrap();
    let granted = tokio::spawn(async move {
        let guard = Lock::new(&next, "/lock").acquire().await.unwrap();
        (Instant::now(), guard)
    });
    soon(async { while client.raw().children("/lock").await.unwrap().len() < 2 {} }).await;
    ensemble.cut_off(true);
    let cut = Instant::now();
    soon(guard.lost()).await;
    let lost = Instant::now();
    let (granted, _next) = soon(granted).await.unwrap();
    // The follower was still serving when the leader expired the session: that did not help.
    let within = granted - cut;
    assert!(within < Duration::from_secs(5), "{within:?}");
    (lost, granted)
}

/// Cost of the heartbeats of a thousand holders. docs/ensembles.md has the result, and how to run it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, and asserts only that nothing is lost"]
async fn heartbeats_of_a_thousand_holding_sessions() {
    const SESSIONS: usize = 1_000;
    const T: Duration = Duration::from_secs(30);
    const MEASURED: Duration = Duration::from_secs(30);
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let servers = ensemble.connect_string();
    let held = (0..SESSIONS).map(|index| {
        let opened = connect(&servers).session_timeout(T).connect_timeout(T * 4);
        async move {
            let client = opened.await.unwrap();
            Lock::new(&client, format!("/lock-{index}"))
                .acquire()
                .await
                .unwrap()
        }
    });
    let guards: Vec<_> = stream::iter(held).buffer_unordered(50).collect().await;
    // Until the first of them are as old as the others.
    tokio::time::timeout(T / 6, std::future::pending::<()>())
        .await
        .unwrap_err();
    let before = costs(&ensemble).await;
    let began = Instant::now();
    tokio::time::timeout(MEASURED, std::future::pending::<()>())
        .await
        .unwrap_err();
    let seconds = began.elapsed().as_secs_f64();
    let after = costs(&ensemble).await;
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        let role = if index == leader {
            "leader"
        } else {
            "follower"
        };
        let requests = (after.0 - before.0) as f64 / seconds;
        let processor = (after.1 - before.1) as f64 / seconds;
        eprintln!("{role}: {requests:.0} requests/s, {processor:.0} % of a processor");
    }
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0);
}

/// Packets from clients, and CPU time in hundredths of a second, of each member.
async fn costs(ensemble: &Ensemble) -> Vec<(u64, u64)> {
    let mut costs = Vec::new();
    for index in 0..3 {
        let monitored = four_letter_word(ensemble.address(index), "mntr")
            .await
            .unwrap();
        let packets = monitored
            .lines()
            .find_map(|line| line.strip_prefix("zk_packets_received\t"));
        let pid = ensemble.pid(index).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // User and system time are the 14th and 15th field; the name in parentheses is the second.
        let times = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11);
        let time = times.take(2).map(|time| time.parse::<u64>().unwrap()).sum();
        costs.push((packets.unwrap().trim().parse().unwrap(), time));
    }
    costs
}
