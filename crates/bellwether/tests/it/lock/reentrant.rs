//! Handles that may acquire again what they hold.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bellwether::hold::Previous;
use bellwether::{Error, ErrorKind, Lock, ReentrantGuard, ReentrantLock, ReentrantRwLock, RwLock};
use bellwether_testkit::Direction;

use futures_util::poll;

use crate::support::place::{Place, soon};

on_both_engines! {
    t31_reader_reads_again_behind_a_queued_writer,
    handle_takes_its_lock_again_and_counts,
    another_handle_is_another_holder,
    writer_may_read_and_reader_may_not_write,
    lost_hold_is_not_taken_again,
    hold_that_the_clock_ended_is_not_waited_for,
    call_that_is_not_polled_blocks_no_other,
    grant_that_is_not_fetched_is_no_crash,
}

const PATH: &str = "/again";

async fn t31_reader_reads_again_behind_a_queued_writer(place: Place) {
    let handle = ReentrantRwLock::new(RwLock::new(&place.client().await, PATH));
    let outer = handle.read().await.unwrap();
    let node = format!("{PATH}/{}", place.children(PATH).await[0]);
    let client = place.client().await;
    let lock = RwLock::new(&client, PATH);
    let writer = tokio::spawn(async move { lock.write().await });
    place.until_children(PATH, 2).await;
    let inner = soon(handle.read()).await.unwrap();
    assert_eq!(inner.count(), 2);
    outer.release().await.unwrap();
    assert!(inner.is_held());
    place
        .until_waits_for(&[&node], client.session_id(), &writer)
        .await;
    inner.release().await.unwrap();
    soon(writer)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn handle_takes_its_lock_again_and_counts(place: Place) {
    let handle = ReentrantLock::new(Lock::new(&place.client().await, PATH));
    let outer = handle.acquire().await.unwrap();
    let inner = soon(handle.clone().acquire()).await.unwrap();
    assert_eq!((outer.count(), outer.token()), (2, inner.token()));
    assert_eq!(place.children(PATH).await.len(), 1);
    inner.release().await.unwrap();
    assert_eq!(outer.count(), 1);
    assert_eq!(place.children(PATH).await.len(), 1);
    outer.release().await.unwrap();
    assert!(place.children(PATH).await.is_empty());
}

async fn another_handle_is_another_holder(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, PATH);
    let guard = ReentrantLock::new(lock.clone()).acquire().await.unwrap();
    let node = format!("{PATH}/{}", place.children(PATH).await[0]);
    let other = ReentrantLock::new(lock);
    let waiting = tokio::spawn(async move { other.acquire().await });
    place.until_children(PATH, 2).await;
    place
        .until_waits_for(&[&node], client.session_id(), &waiting)
        .await;
    guard.release().await.unwrap();
    soon(waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn writer_may_read_and_reader_may_not_write(place: Place) {
    let handle = ReentrantRwLock::new(RwLock::new(&place.client().await, PATH));
    let writing = handle.write().await.unwrap();
    let reading = soon(handle.read()).await.unwrap();
    assert_eq!(reading.token(), writing.token());
    writing.release().await.unwrap();
    reading.release().await.unwrap();
    let reading = handle.read().await.unwrap();
    let refused = soon(handle.write()).await;
    assert_fails!(refused, ErrorKind::Unsupported { .. });
    assert!(reading.is_held());
    reading.release().await.unwrap();
    assert!(place.children(PATH).await.is_empty());
}

async fn lost_hold_is_not_taken_again(place: Place) {
    let handle = ReentrantLock::new(Lock::new(&place.client().await, PATH));
    let lost = handle.acquire().await.unwrap();
    let node = format!("{PATH}/{}", lost.node());
    place.outside().delete(&node, None).await.unwrap();
    soon(lost.lost()).await;
    let next = soon(handle.acquire()).await.unwrap();
    assert!(next.is_held() && next.token() > lost.token());
    assert!(lost.release().await.is_err());
    next.release().await.unwrap();
}

async fn hold_that_the_clock_ended_is_not_waited_for(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(6)).await;
    let session = client.raw();
    let handle = ReentrantLock::new(Lock::new(&client, PATH));
    let outer = handle.acquire().await.unwrap();
    proxy.hold(Direction::ToClient);
    soon(outer.lost()).await;
    // In time for the servers, which have not expired the session.
    proxy.calm();
    let inner = soon(handle.acquire()).await.unwrap();
    assert!(!session.state().is_ended() && inner.token() > outer.token());
    assert!(outer.release().await.is_err());
    inner.release().await.unwrap();
    place.until_children(PATH, 0).await;
}

/// A call that was polled once. A session may be done with it within that poll: then it begins again.
async fn begun<F>(begin: impl Fn() -> F) -> Pin<Box<F>>
where
    F: Future<Output = Result<ReentrantGuard, Error>>,
{
    loop {
        let mut call = Box::pin(begin());
        match poll!(&mut call) {
            Poll::Pending => return call,
            Poll::Ready(guard) => guard.unwrap().release().await.unwrap(),
        }
    }
}

async fn call_that_is_not_polled_blocks_no_other(place: Place) {
    let client = place.client().await;
    let handle = ReentrantLock::new(Lock::new(&client, PATH));
    let idle = begun(|| handle.acquire()).await;
    let other = soon(handle.acquire()).await.unwrap();
    let idle = soon(idle).await.unwrap();
    assert_eq!((idle.count(), idle.token()), (2, other.token()));
    let sides = ReentrantRwLock::new(RwLock::new(&client, "/sides"));
    let _idle = begun(|| sides.read()).await;
    assert_eq!(soon(sides.read()).await.unwrap().count(), 2);
}

/// Its task has acquired the lock, and its caller has never received it.
async fn grant_that_is_not_fetched_is_no_crash(place: Place) {
    let lock = Lock::new(&place.client().await, PATH).crash_mark();
    let handle = ReentrantLock::new(lock.clone());
    let idle = begun(|| handle.acquire()).await;
    let held = soon(async {
        while !place.children(PATH).await.iter().any(|name| name == "held") {
            tokio::task::yield_now().await;
        }
    });
    held.await;
    drop(idle);
    let next = soon(lock.acquire()).await.unwrap();
    assert!(matches!(next.previous(), Previous::Clean), "{next:?}");
}
