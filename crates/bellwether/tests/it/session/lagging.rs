//! Readers that connect to a server that lags behind what they have already shown.

use std::time::Duration;

use bellwether::cache::CacheEvent;
use bellwether::state::Seen;
use bellwether::two_phase::{Decision, Vote};
use bellwether::{
    Cache, Client, Config, Counter, ErrorKind, Group, Lock, SimpleLock, Tasks, TwoPhase, connect,
    zk,
};
use bellwether_testkit::{Cut, Direction, Ensemble, FaultProxy, Op};
use futures_util::StreamExt;

use crate::support::place::{Place, note_requests, soon};

on_both_engines! {
    write_with_a_lost_reply_is_found_by_its_receipt,
    contender_in_doubt_is_removed_when_the_server_has_caught_up,
    member_that_leaves_in_doubt_looks_when_the_server_has_caught_up,
    release_of_a_plain_lock_looks_when_the_server_has_caught_up,
    crash_mark_in_doubt_is_read_when_the_server_has_caught_up,
    crash_mark_in_doubt_is_undone_when_the_server_has_caught_up,
}

/// Long enough that the client does not give up while the server lags, short enough that it retries often.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

fn number(data: &[u8]) -> u32 {
    String::from_utf8_lossy(data).parse().unwrap()
}

/// An ensemble, and a proxy to its member that can be held back.
async fn one_that_can_lag() -> (Ensemble, FaultProxy) {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    assert_ne!(leader, 0, "the one that lags follows");
    let lagging = FaultProxy::start(ensemble.address(0)).await.unwrap();
    (ensemble, lagging)
}

/// Waits until one of these requests has reached the lagging server.
async fn until_asked(lagging: &FaultProxy, ops: &[Op]) {
    soon(async {
        while ops.iter().all(|op| lagging.count(*op) == 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Within a session the servers ensure this: a lagging server refuses a client that has seen more. A new session is itself a write, for
/// which the server must first apply all earlier ones; `sync` ensures it where sessions are local.
#[tokio::test(flavor = "multi_thread")]
async fn t83_readers_do_not_go_back_on_a_follower_that_lags() {
    let (ensemble, lagging) = one_that_can_lag().await;
    let current = FaultProxy::start(ensemble.address(1)).await.unwrap();
    let writer = connect(ensemble.address(2).to_string()).await.unwrap();
    let writer = Config::<String>::new(&writer, "/app/value");
    writer.set(&"1".to_owned()).await.unwrap();

    lagging.refuse(true);
    let both = format!("{},{}", lagging.address(), current.address());
    let client = connect(both)
        .session_timeout(SESSION_TIMEOUT)
        .await
        .unwrap();
    let mut values = Config::<String>::new(&client, "/app/value").watch();
    let tree = soon(Cache::new(&client, "/app").open()).await.unwrap();
    let mut changes = tree.changes();
    let outside = zk::Client::connect(ensemble.address(0).to_string())
        .await
        .unwrap();
    outside.sync("/app/value").await.unwrap();

    ensemble.hold_back(true);
    writer.set(&"2".to_owned()).await.unwrap();
    let mut shown = 0;
    let mut next = async || loop {
        match soon(values.next()).await.unwrap().unwrap() {
            Seen::Value(entry) => {
                let value = number(entry.value.as_bytes());
                assert!(value >= shown, "{value} after {shown}");
                shown = value;
                return value;
            }
            Seen::Renewed => {}
            other => panic!("{other:?}"),
        }
    };
    while next().await < 2 {}
    let mut cached = 0;
    let mut next_cached = async || loop {
        if let CacheEvent::Changed { path, node } = soon(changes.next()).await.unwrap()
            && &*path == "/app/value"
        {
            let value = number(&node.data);
            assert!(value > cached, "{value} after {cached}");
            cached = value;
            return value;
        }
    };
    assert_eq!(next_cached().await, 2);
    let (stale, _) = outside.get("/app/value").await.unwrap();
    assert_eq!(number(&stale), 1, "the follower lags");

    // Now only the lagging server is reachable, and it refuses them until it has caught up.
    lagging.refuse(false);
    current.refuse(true);
    current.cut(Cut::Reset).await;
    soon(async {
        while lagging.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ensemble.hold_back(false);
    writer.set(&"3".to_owned()).await.unwrap();
    while next().await < 3 {}
    while next_cached().await < 3 {}
    assert_eq!(current.connections_now(), 0);
}

async fn write_with_a_lost_reply_is_found_by_its_receipt(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let counter = Counter::new(&client, "/lagging/hits");
    assert_eq!(counter.add(1).await.unwrap(), 1);
    let seen = note_requests(&proxy, |path| path.contains("/receipt-"));
    let lost = proxy.swallow_reply(Op::Multi);
    assert_eq!(soon(counter.add(1)).await.unwrap(), 2);
    lost.happened().await.unwrap();
    // The second try is refused by the servers, wherever it arrives: the look needs no sync.
    assert_eq!(*seen.lock().unwrap(), [Op::GetData]);
}

async fn contender_in_doubt_is_removed_when_the_server_has_caught_up(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let lock = Lock::new(&client, "/lagging");
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
    proxy.hold(Direction::ToClient);
    let acquired = tokio::spawn(async move { lock.acquire().await });
    place.until_children("/lagging", 1).await;
    acquired.abort();
    assert!(acquired.await.unwrap_err().is_cancelled());
    let seen = note_requests(&proxy, |path| path.ends_with("/lagging"));
    proxy.cut(Cut::Reset).await;
    proxy.resume(Direction::ToClient);
    place.until_children("/lagging", 0).await;
    assert!(!session.state().is_ended());
    // The first ones may be lost with the connection.
    let seen = seen.lock().unwrap();
    assert!(seen.ends_with(&[Op::Sync, Op::GetChildren]), "{seen:?}");
}

async fn member_that_leaves_in_doubt_looks_when_the_server_has_caught_up(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let member = Group::new(&client, "/lagging").join_as("a", "").await;
    let seen = note_requests(&proxy, |path| path.ends_with("/lagging/a"));
    let lost = proxy.swallow_reply(Op::Delete);
    soon(member.unwrap().leave()).await;
    lost.happened().await.unwrap();
    let seen = seen.lock().unwrap();
    let look = [Op::Sync, Op::GetData];
    assert!(seen.windows(2).any(|two| two == look), "{seen:?}");
}

async fn release_of_a_plain_lock_looks_when_the_server_has_caught_up(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let guard = SimpleLock::new(&client, "/lagging").acquire().await;
    let seen = note_requests(&proxy, |path| path.ends_with("/lagging"));
    let lost = proxy.swallow_reply(Op::Multi);
    soon(guard.unwrap().release()).await.unwrap();
    lost.happened().await.unwrap();
    let mut seen = seen.lock().unwrap().clone();
    // The hold watches its node.
    seen.retain(|op| *op != Op::GetData);
    let look = [Op::Sync, Op::Exists];
    assert!(seen.starts_with(&look) && seen.ends_with(&look), "{seen:?}");
}

async fn crash_mark_in_doubt_is_read_when_the_server_has_caught_up(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let seen = note_requests(&proxy, |path| path.ends_with("/held"));
    let lock = Lock::new(&client, "/lagging").crash_mark();
    let is_mark = |body: &[u8]| body.windows(5).any(|part| part == b"/held");
    let lost =
        proxy.swallow_reply_where(move |request| request.op == Op::Multi && is_mark(&request.body));
    let guard = soon(lock.acquire()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [Op::Sync, Op::GetData]);
    guard.release().await.unwrap();
}

async fn crash_mark_in_doubt_is_undone_when_the_server_has_caught_up(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let lock = Lock::new(&client, "/lagging").crash_mark();
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
    let seen = note_requests(&proxy, |path| path.ends_with("/held"));
    let lost = proxy.swallow_reply(Op::Multi);
    let acquired = tokio::spawn(async move { lock.acquire().await });
    proxy.refuse(true);
    lost.happened().await.unwrap();
    acquired.abort();
    assert!(acquired.await.unwrap_err().is_cancelled());
    proxy.refuse(false);
    place.until_children("/lagging", 0).await;
    assert!(!session.state().is_ended());
    // The acquisition may have requested it too, before it ended.
    let seen = seen.lock().unwrap();
    assert!(seen.ends_with(&[Op::Sync, Op::GetData]), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_on_a_follower_that_lags_spares_the_next_holder_of_a_plain_lock() {
    let (ensemble, lagging) = one_that_can_lag().await;
    let [behind, ahead] = one_behind_one_ahead(&ensemble, &lagging).await;
    let guard = SimpleLock::new(&behind, "/simple").acquire().await.unwrap();
    ensemble.hold_back(true);
    ahead.raw().delete("/simple", None).await.unwrap();
    let next = SimpleLock::new(&ahead, "/simple").acquire().await.unwrap();
    let released = tokio::spawn(guard.release());
    until_asked(&lagging, &[Op::Delete, Op::Multi]).await;
    ensemble.hold_back(false);
    let released = soon(released).await.unwrap();
    let stat = ahead.raw().exists("/simple").await.unwrap();
    assert_eq!(stat.map(|stat| stat.czxid), Some(next.token().number()));
    assert_fails!(released, ErrorKind::NotHeld);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clearing_a_crash_on_a_follower_that_lags_spares_the_mark_of_a_later_holder() {
    let (ensemble, lagging) = one_that_can_lag().await;
    let [behind, ahead] = one_behind_one_ahead(&ensemble, &lagging).await;
    let [behind, ahead] = [behind, ahead].map(|client| Lock::new(&client, "/lock").crash_mark());
    // A crash that both know of.
    drop(behind.acquire().await.unwrap());
    let repaired = soon(ahead.acquire()).await.unwrap();
    repaired.release_unrepaired().await.unwrap();
    behind
        .acquire()
        .await
        .unwrap()
        .release_unrepaired()
        .await
        .unwrap();
    ensemble.hold_back(true);
    ahead.acquire().await.unwrap().release().await.unwrap();
    let holder = ahead.acquire().await.unwrap();
    lagging.reset_counts();
    let cleared = tokio::spawn(async move { behind.clear_crash_mark().await });
    until_asked(&lagging, &[Op::Delete, Op::Multi]).await;
    ensemble.hold_back(false);
    let cleared = soon(cleared).await.unwrap();
    assert_fails!(cleared, ErrorKind::Held { .. });
    holder.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn task_that_was_just_added_is_found_on_a_follower_that_lags() {
    let (ensemble, lagging) = one_that_can_lag().await;
    let [behind, ahead] = one_behind_one_ahead(&ensemble, &lagging).await;
    let follower = behind.raw();
    let [behind, ahead] = [behind, ahead].map(|client| Tasks::<Vec<u8>>::new(&client, "/tasks"));
    for round in ["counts", "take"] {
        // It has seen everything except the task that follows.
        follower.sync("/").await.unwrap();
        lagging.reset_counts();
        ensemble.hold_back(true);
        assert!(ahead.add(round, &Vec::new()).await.unwrap());
        let asked = tokio::spawn({
            let behind = behind.clone();
            async move {
                match round {
                    "counts" => behind.counts().await.unwrap().open,
                    _ => usize::from(behind.take().await.unwrap().is_some()),
                }
            }
        });
        soon(async {
            while lagging.count(Op::Sync) == 0 && !asked.is_finished() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        ensemble.hold_back(false);
        assert_eq!(soon(asked).await.unwrap(), 1, "{round}");
        let task = soon(ahead.take()).await.unwrap().unwrap();
        task.done().await.unwrap();
    }
}

/// The answer *no* of a counter is not that of a follower that lags.
#[tokio::test(flavor = "multi_thread")]
async fn counter_is_compared_with_its_latest_value_on_a_follower_that_lags() {
    let (ensemble, lagging) = one_that_can_lag().await;
    let [behind, ahead] = one_behind_one_ahead(&ensemble, &lagging).await;
    let [behind, ahead] = [behind, ahead].map(|client| Counter::new(&client, "/counts/hits"));
    assert_eq!(ahead.add(1).await.unwrap(), 1);
    assert!(soon(behind.compare_and_set(1, 2)).await.unwrap());
    lagging.reset_counts();
    ensemble.hold_back(true);
    assert_eq!(ahead.add(1).await.unwrap(), 3);
    let set = tokio::spawn(async move { behind.compare_and_set(3, 4).await });
    // A write of the quorum goes ahead of the read.
    until_asked(&lagging, &[Op::Multi]).await;
    ensemble.hold_back(false);
    assert!(soon(set).await.unwrap().unwrap(), "a false no");
}

/// Sessions with the lagging server, and with one that is up to date.
async fn one_behind_one_ahead(ensemble: &Ensemble, lagging: &FaultProxy) -> [Client; 2] {
    let behind = connect(lagging.connect_string()).session_timeout(SESSION_TIMEOUT);
    let ahead = connect(ensemble.address(2).to_string());
    [behind.await.unwrap(), ahead.await.unwrap()]
}

/// Through a lagging follower, a transaction is found that was begun a moment ago.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_that_has_just_begun_is_found_on_a_follower_that_lags() {
    let (ensemble, lagging) = one_that_can_lag().await;
    let [behind, ahead] = one_behind_one_ahead(&ensemble, &lagging).await;
    let [behind, ahead] = [behind, ahead].map(|client| TwoPhase::new(&client, "/tx"));
    let other = ahead.begin_as("other", ["z"], "").await.unwrap();
    soon(behind.transaction("other").status()).await.unwrap();

    for round in ["join", "vote", "decision", "list"] {
        lagging.reset_counts();
        ensemble.hold_back(true);
        let mut coordinator = ahead.begin_as(round, ["a"], "").await.unwrap();
        if round == "decision" {
            coordinator.vote("a", Vote::Commit).await.unwrap();
            coordinator.decide().await.unwrap();
        }
        let asked = tokio::spawn({
            let (behind, transaction) = (behind.clone(), behind.transaction(round));
            async move {
                match round {
                    "join" => transaction.join("a").await.map(drop),
                    "vote" => transaction.vote("a", Vote::Commit).await.map(drop),
                    "decision" => transaction.decision().await.map(|decision| {
                        assert_eq!(decision, Decision::Commit);
                    }),
                    _ => behind.list().await.map(|all| {
                        assert!(all.iter().any(|status| status.id == "list"), "{all:?}");
                    }),
                }
            }
        });
        // The lagging server reads its first requests.
        until_asked(&lagging, &[Op::Create2, Op::Sync]).await;
        ensemble.hold_back(false);
        soon(asked).await.unwrap().unwrap();
        drop(coordinator);
    }
    drop(other);
}
