//! How a client closes: at once, or gracefully.

use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::election::CandidacyState;
use bellwether::error::ConnectError;
use bellwether::{Cache, Config, Election, ErrorKind, Lock, Queue, connect};
use bellwether_testkit::TestServer;
use futures_util::StreamExt;

use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    close_ends_the_session_whatever_there_is,
    gentle_close_ends_what_waits,
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
    // Also if the servers report the deletion of its node before the end of the session.
    let waited = soon(waits).await.unwrap();
    assert_fails!(waited, ErrorKind::NoSession(ConnectError::Closed));
    // The client is closed for good: no recipe opens another session.
    let refused = soon(lock.acquire()).await;
    assert_fails!(refused, ErrorKind::NoSession(ConnectError::Closed));
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

async fn gentle_close_ends_what_waits(place: Place) {
    let (holder, client) = (place.client().await, place.client().await);
    let guard = Lock::new(&holder, "/lock").acquire().await.unwrap();
    let leadership = Election::new(&holder, "/leader").campaign().await.unwrap();
    let acquiring = tokio::spawn({
        let lock = Lock::new(&client, "/lock");
        async move { lock.acquire().await }
    });
    let standby = tokio::spawn(
        Election::new(&client, "/leader")
            .candidacy()
            .collect::<Vec<_>>(),
    );
    let consuming = tokio::spawn(
        Queue::<Vec<u8>>::new(&client, "/queue")
            .consumer()
            .collect::<Vec<_>>(),
    );
    for (directory, contenders) in [("/lock", 2), ("/leader", 2), ("/queue/line", 1)] {
        place.until_children(directory, contenders).await;
    }

    // Nothing is held, so it does not use its limit up.
    assert!(soon(client.close_gently(Duration::MAX)).await);
    let waited = soon(acquiring).await.unwrap();
    assert_fails!(waited, ErrorKind::NoSession(ConnectError::Closed));
    let taken = soon(consuming).await.unwrap().pop().unwrap();
    assert_fails!(taken, ErrorKind::NoSession(ConnectError::Closed));
    let states = soon(standby).await.unwrap();
    let Some(CandidacyState::Interrupted(error)) = states.last() else {
        panic!("{states:?}");
    };
    assert!(
        matches!(error.kind, ErrorKind::NoSession(ConnectError::Closed)),
        "{error:?}"
    );
    assert!(guard.is_held() && leadership.is_held());
    place.until_children("/lock", 1).await;
}

#[tokio::test]
async fn gentle_close_without_servers_keeps_its_limit() {
    let mut server = TestServer::start().await.unwrap();
    // Longer than the test waits for anything.
    let minute = Duration::from_secs(60);
    let client = connect(server.connect_string())
        .session_timeout(minute)
        .await
        .unwrap();
    let guard = Lock::new(&client, "/lock").acquire().await.unwrap();
    server.stop().await;
    assert!(!soon(client.close_gently(Duration::from_millis(100))).await);
    drop(guard);
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
