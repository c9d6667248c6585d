//! The maximum duration, wherever a duration is an argument: nothing overflows, and nothing ends early.

use std::time::Duration;

use bellwether::inspect::Contention;
use bellwether::{
    Barrier, Client, DelayQueue, DoubleBarrier, Election, Lock, MultiLock, Queue, RwLock,
    Semaphore, SimpleLock, TwoPhase, connect, zk,
};
use futures_util::FutureExt;

use crate::support::place::{Place, soon};

const FOREVER: Duration = Duration::MAX;

on_both_engines! {
    sessions_are_asked_for_the_longest_time,
    holds_are_waited_for_without_end,
    items_are_put_after_the_longest_delay,
    everything_else_takes_the_longest_time,
}

async fn forever(place: &Place) -> Client {
    connect(format!("{}{}", place.server(), place.chroot()))
        .session_timeout(FOREVER)
        .connect_timeout(FOREVER)
        .await
        .unwrap()
}

async fn sessions_are_asked_for_the_longest_time(place: Place) {
    let client = forever(&place).await;
    client.raw().sync("/").await.unwrap();
    let limits = zk::Limits {
        request_timeout: Some(FOREVER),
        ..zk::Limits::default()
    };
    let raw = zk::Client::connect(place.server()).limits(limits);
    let raw = soon(raw.session_timeout(FOREVER).into_future())
        .await
        .unwrap();
    raw.sync("/").await.unwrap();
}

async fn holds_are_waited_for_without_end(place: Place) {
    let client = forever(&place).await;
    let lock = Lock::new(&client, "/lock").lock_delay(FOREVER);
    let held = soon(lock.acquire_timeout(FOREVER)).await.unwrap();
    assert!(held.expiring(FOREVER).now_or_never().is_some());
    let waiting = tokio::spawn(async move { lock.acquire_timeout(FOREVER).await });
    place.until_children("/lock", 3).await;
    held.release().await.unwrap();
    drop(soon(waiting).await.unwrap().unwrap());
    let rw = RwLock::new(&client, "/rw");
    drop(soon(rw.read_timeout(FOREVER)).await.unwrap());
    drop(soon(rw.write_timeout(FOREVER)).await.unwrap());
    let simple = SimpleLock::new(&client, "/simple");
    drop(soon(simple.acquire_timeout(FOREVER)).await.unwrap());
    let semaphore = Semaphore::new(&client, "/semaphore", 1);
    drop(soon(semaphore.acquire_timeout(FOREVER)).await.unwrap());
    let multi = MultiLock::new([Lock::new(&client, "/one"), Lock::new(&client, "/two")]);
    drop(soon(multi.acquire_timeout(FOREVER)).await.unwrap());
    let election = Election::new(&client, "/election");
    drop(soon(election.campaign_timeout(FOREVER)).await.unwrap());
}

async fn items_are_put_after_the_longest_delay(place: Place) {
    let client = place.client().await;
    let later = DelayQueue::<String>::new(&client, "/later");
    soon(later.put_after(FOREVER, &"never".to_owned()))
        .await
        .unwrap();
    assert!(soon(later.try_take()).await.unwrap().is_none());
    soon(later.put_after(Duration::ZERO, &"now".to_owned()))
        .await
        .unwrap();
    let claim = soon(later.take_timeout(FOREVER)).await.unwrap();
    assert_eq!(claim.payload(), "now");
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
    queue.put(&b"item".to_vec()).await.unwrap();
    soon(queue.take_timeout(FOREVER))
        .await
        .unwrap()
        .ack()
        .await
        .unwrap();
}

async fn everything_else_takes_the_longest_time(place: Place) {
    let client = place.client().await;
    soon(Barrier::new(&client, "/gate").wait_timeout(FOREVER))
        .await
        .unwrap();
    let double = DoubleBarrier::new(&client, "/double", 1);
    let inside = soon(double.enter_timeout(FOREVER)).await.unwrap();
    soon(inside.leave_timeout(FOREVER)).await.unwrap();
    let transactions = TwoPhase::new(&client, "/tx").deadline(FOREVER);
    let mut coordinator = soon(transactions.begin(["a"], "")).await.unwrap();
    let participation = soon(coordinator.join("a")).await.unwrap();
    assert!(participation.proposal().time_left().unwrap() > Duration::from_secs(1 << 30));
    soon(coordinator.abort("enough")).await.unwrap();
    soon(coordinator.decision_timeout(FOREVER)).await.unwrap();
    assert!(
        soon(transactions.clean_up(FOREVER))
            .await
            .unwrap()
            .is_empty()
    );
    let held = soon(Lock::new(&client, "/held").acquire()).await.unwrap();
    let asked = Contention::new(&client, "/held");
    let holder = asked.line().await.unwrap().remove(0);
    let breaking = tokio::spawn(async move {
        let broken = asked.break_hold(&holder.node, holder.token, FOREVER);
        broken.await
    });
    soon(held.revoked()).await;
    held.release().await.unwrap();
    soon(breaking).await.unwrap().unwrap();
}
