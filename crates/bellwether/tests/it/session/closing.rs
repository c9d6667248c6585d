//! How a client closes: at once, or gracefully.

use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::error::ConnectError;
use bellwether::{Cache, Config, Election, Error, ErrorKind, Lock, Queue, connect};
use futures_util::StreamExt;

use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    close_ends_the_session_whatever_there_is,
    gentle_close_waits_for_what_is_held,
    gentle_close_gives_up_after_its_limit,
}

async fn close_ends_the_session_whatever_there_is(place: Place) {
    let client = place.client().await;
    let session = client.raw();
    let lock = Lock::new(&client, "/lock");
    let (guard, raw) = (lock.acquire().await.unwrap(), client.raw());
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    place.until_children("/lock", 2).await;
    let ended = tokio::spawn({
        let raw = raw.clone();
        async move { raw.ended().await }
    });
    let config = Config::<String>::new(&client, "/config");
    let mut watch = config.watch();
    soon(watch.next()).await.unwrap().unwrap();
    let (states, candidacy) = (client.states(), Election::new(&client, "/e").candidacy());
    let tree = Cache::new(&client, "/lock").open().await.unwrap();
    let queue = Queue::<Vec<u8>>::new(&client, "/queue");
    queue.put(&b"item".to_vec()).await.unwrap();
    let claim = queue.take().await.unwrap();
    let mut consumer = queue.consumer();

    soon(client.close()).await;
    assert!(session.state().is_ended());
    assert!(!guard.is_held() && !claim.is_held());
    soon(ended).await.unwrap();
    let waited = soon(waits).await.unwrap();
    // Also if the servers report the deletion of its node before the end of the session.
    assert_fails!(waited, ErrorKind::SessionEnded);
    // The client is closed for good: no recipe opens another session.
    let refused = soon(lock.acquire()).await;
    let is_closed = |source: &ConnectError| matches!(source, ConnectError::Closed);
    assert!(
        matches!(&refused, Err(Error { kind: ErrorKind::NoSession(source), .. }) if is_closed(source)),
        "{refused:?}"
    );
    // A loop that retries transient errors ends here.
    assert!(!refused.unwrap_err().is_transient());
    // Background work ends.
    assert!(soon(consumer.next()).await.unwrap().is_err());
    assert!(soon(consumer.next()).await.is_none());
    let rest = soon(watch.collect::<Vec<_>>()).await;
    assert!(rest.last().unwrap().is_err(), "{rest:?}");
    place.until_children("/lock", 0).await;
    drop((states, candidacy, tree));
}

async fn gentle_close_waits_for_what_is_held(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, "/lock");
    let guard = lock.acquire().await.unwrap();
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close_gently(Duration::from_secs(15)).await }
    });
    // No new hold is acquired any more.
    let refused = soon(async {
        loop {
            match Lock::new(&client, "/other").try_acquire().await {
                Ok(other) => drop(other),
                Err(error) => return error,
            }
        }
    });
    let refused = refused.await;
    assert!(
        matches!(refused.kind, ErrorKind::NoSession(_)),
        "{refused:?}"
    );
    assert!(guard.is_held());
    assert!(!closing.is_finished());
    guard.release().await.unwrap();
    assert!(soon(closing).await.unwrap(), "it was released in time");
    assert!(client.raw().state().is_ended());
}

async fn gentle_close_gives_up_after_its_limit(place: Place) {
    let client = place.client().await;
    let guard = Lock::new(&client, "/lock").acquire().await.unwrap();
    let limit = Duration::from_millis(100);
    assert!(!soon(client.close_gently(limit)).await);
    assert!(!guard.is_held());
    place.until_children("/lock", 0).await;
}

#[test]
fn close_returns_when_the_runtime_of_the_session_is_gone() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    };
    let outer = runtime();
    let place = outer.block_on(Place::embedded());
    let inner = runtime();
    let (client, guard) = inner.block_on(async {
        let client = connect(format!("{}{}", place.server(), place.chroot()))
            .session_timeout(SESSION_TIMEOUT)
            .on_current_runtime()
            .await
            .unwrap();
        let guard = Lock::new(&client, "/lock").acquire().await.unwrap();
        (client, guard)
    });
    drop(inner);
    // On another runtime, and on a plain thread.
    outer.block_on(async { soon(client.close()).await });
    assert!(!guard.is_held());
    client.close().wait();
    let held = outer.block_on(async { soon(client.close_gently(Duration::MAX)).await });
    // The guard still exists, but holds nothing.
    assert!(!held);
    drop(guard);
}
