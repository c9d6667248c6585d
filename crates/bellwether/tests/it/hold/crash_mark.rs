//! Whether the previous holder released, or crashed.

use std::time::{Duration, Instant};

use bellwether::hold::Previous;
use bellwether::{Client, Election, ErrorKind, FencingToken, Hold, Lock, MultiLock, RwLock, zk};
use bellwether_testkit::Cut;
use bellwether_wire::op::Op;

use crate::support::dropping::drop_when_woken;
use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    released_hold_is_clean,
    dropped_hold_is_a_crash,
    expired_hold_is_a_crash_also_with_nobody_waiting,
    note_tells_how_far_it_was,
    unrepaired_crash_is_told_again,
    cleared_crash_is_forgotten,
    lost_replies_are_resolved_by_the_mark,
    cancelled_acquire_restores_the_mark,
    grant_that_did_not_reach_its_caller_is_no_crash,
    grant_that_did_not_reach_its_caller_restores_the_mark,
    several_locks_given_up_halfway_are_no_crash,
    lock_delay_is_waited_after_a_crash_only,
    giving_up_in_the_lock_delay_restores_the_mark,
    note_of_any_size_is_written_or_refused,
    without_a_mark_nobody_knows,
}

fn marked(client: &Client) -> Lock {
    Lock::new(client, "/marked").crash_mark().message("moving")
}

/// The crashed holder, by message and token.
fn crash(guard: &Hold) -> (Option<String>, Option<FencingToken>) {
    match guard.previous() {
        Previous::Crashed(crash) => (
            crash.who.as_ref().and_then(|who| who.message.clone()),
            crash.token,
        ),
        other => panic!("{other:?}"),
    }
}

async fn released_hold_is_clean(place: Place) {
    let lock = marked(&place.client().await);
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.previous(), &Previous::Clean);
        assert_eq!(place.children("/marked").await.len(), 2);
        guard.release().await.unwrap();
        assert!(place.children("/marked").await.is_empty());
    }
}

async fn dropped_hold_is_a_crash(place: Place) {
    let lock = marked(&place.client().await);
    let guard = lock.acquire().await.unwrap();
    let token = guard.token();
    drop(guard);
    let guard = soon(lock.acquire()).await.unwrap();
    assert_eq!(crash(&guard), (Some("moving".to_owned()), Some(token)));
    guard.release().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.previous(), &Previous::Clean);
}

async fn expired_hold_is_a_crash_also_with_nobody_waiting(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_millis(600)).await;
    let guard = marked(&client).acquire().await.unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    // The mark alone remains, and keeps the directory.
    place.until_children("/marked", 1).await;
    let next = soon(marked(&place.client().await).acquire()).await.unwrap();
    assert_eq!(crash(&next).1, Some(guard.token()));
    next.release().await.unwrap();
}

async fn note_tells_how_far_it_was(place: Place) {
    let lock = marked(&place.client().await);
    for note in [&b"row 4711"[..], &[0xff, 0, 1]] {
        let guard = lock.acquire().await.unwrap();
        guard.note("begun").await.unwrap();
        guard.note(note).await.unwrap();
        drop(guard);
        let next = soon(lock.acquire()).await.unwrap();
        match next.previous() {
            Previous::Crashed(crash) => assert_eq!(crash.note.as_deref(), Some(note)),
            other => panic!("{other:?}"),
        }
        next.release().await.unwrap();
    }
    let guard = lock.acquire().await.unwrap();
    let node = format!("/marked/{}", guard.node());
    place.outside().delete(&node, None).await.unwrap();
    let late = guard.note("too late").await;
    assert_fails!(late, ErrorKind::NotHeld);
}

async fn unrepaired_crash_is_told_again(place: Place) {
    let lock = marked(&place.client().await);
    let guard = lock.acquire().await.unwrap();
    let token = guard.token();
    drop(guard);
    for _ in 0..2 {
        let guard = soon(lock.acquire()).await.unwrap();
        assert_eq!(crash(&guard).1, Some(token));
        guard.release_unrepaired().await.unwrap();
    }
    let guard = lock.acquire().await.unwrap();
    assert_eq!(crash(&guard).1, Some(token));
    guard.release().await.unwrap();
    // Without a crash it is a normal release.
    lock.acquire()
        .await
        .unwrap()
        .release_unrepaired()
        .await
        .unwrap();
    assert!(place.children("/marked").await.is_empty());
}

async fn cleared_crash_is_forgotten(place: Place) {
    let lock = marked(&place.client().await);
    assert!(!lock.clear_crash_mark().await.unwrap());
    let guard = lock.acquire().await.unwrap();
    let held = lock.clear_crash_mark().await;
    assert_fails!(held, ErrorKind::Held { .. });
    drop(guard);
    place.until_children("/marked", 1).await;
    assert!(lock.clear_crash_mark().await.unwrap());
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.previous(), &Previous::Clean);
    guard.release().await.unwrap();
}

async fn lost_replies_are_resolved_by_the_mark(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lock = marked(&client);
    // Of the grant, after a release.
    let lost = proxy.swallow_reply(Op::Multi);
    let guard = soon(lock.acquire()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(guard.previous(), &Previous::Clean);
    let token = guard.token();
    drop(guard);
    // Of the grant, after a crash: the first multi is refused, the second lost.
    place.until_children("/marked", 1).await;
    let refused_first = std::sync::atomic::AtomicBool::new(false);
    let lost = proxy.swallow_reply_where(move |request| {
        request.op == Op::Multi && refused_first.swap(true, std::sync::atomic::Ordering::Relaxed)
    });
    let guard = soon(lock.acquire()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(crash(&guard).1, Some(token));
    // Of the release.
    let lost = proxy.swallow_reply(Op::Multi);
    soon(guard.release()).await.unwrap();
    lost.happened().await.unwrap();
    assert!(place.children("/marked").await.is_empty());
}

async fn cancelled_acquire_restores_the_mark(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let lock = marked(&client);
    let guard = lock.acquire().await.unwrap();
    let token = guard.token();
    drop(guard);
    place.until_children("/marked", 1).await;
    let (crashed, _) = place.outside().get("/marked/held").await.unwrap();
    // The mark has been written, and its reply does not arrive before the contender gives up.
    let seen = std::sync::atomic::AtomicBool::new(false);
    let lost = proxy.swallow_reply_where(move |request| {
        request.op == Op::Multi && seen.swap(true, std::sync::atomic::Ordering::Relaxed)
    });
    let acquired = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    lost.happened().await.unwrap();
    proxy.refuse(true);
    acquired.abort();
    assert!(acquired.await.unwrap_err().is_cancelled());
    let (marked_by_it, _) = place.outside().get("/marked/held").await.unwrap();
    assert_ne!(marked_by_it, crashed, "it had not marked yet");
    proxy.refuse(false);
    place.until_children("/marked", 1).await;
    let (restored, _) = place.outside().get("/marked/held").await.unwrap();
    assert_eq!(restored, crashed);
    let guard = soon(lock.acquire()).await.unwrap();
    assert_eq!(crash(&guard).1, Some(token));
    guard.release().await.unwrap();
}

async fn grant_that_did_not_reach_its_caller_is_no_crash(place: Place) {
    let (proxy, client) = place.counted().await;
    let lock = marked(&client);
    drop_when_woken(&proxy, lock.acquire()).await;
    drop_when_woken(&proxy, lock.try_acquire()).await;
    let guard = soon(lock.acquire()).await.unwrap();
    assert_eq!(guard.previous(), &Previous::Clean);
    guard.release().await.unwrap();

    let lock = RwLock::new(&client, "/written").crash_mark();
    drop_when_woken(&proxy, lock.write()).await;
    drop_when_woken(&proxy, lock.try_write()).await;
    let guard = soon(lock.write()).await.unwrap();
    assert_eq!(guard.previous(), &Previous::Clean);
    guard.release().await.unwrap();

    let election = Election::new(&client, "/led").crash_mark();
    drop_when_woken(&proxy, election.campaign()).await;
    let leadership = soon(election.campaign()).await.unwrap();
    assert_eq!(leadership.previous(), &Previous::Clean);
    leadership.resign().await.unwrap();
    for path in ["/marked", "/written", "/led"] {
        place.until_children(path, 0).await;
    }
}

async fn grant_that_did_not_reach_its_caller_restores_the_mark(place: Place) {
    let (proxy, client) = place.counted().await;
    let lock = marked(&client);
    let crashed = lock.acquire().await.unwrap();
    let token = crashed.token();
    drop(crashed);
    place.until_children("/marked", 1).await;
    drop_when_woken(&proxy, lock.acquire()).await;
    let guard = soon(lock.acquire()).await.unwrap();
    assert_eq!(crash(&guard).1, Some(token));
    guard.release().await.unwrap();
}

async fn several_locks_given_up_halfway_are_no_crash(place: Place) {
    const LIMIT: Duration = Duration::from_millis(300);
    let client = place.client().await;
    let [first, last] = ["/a", "/b"].map(|path| Lock::new(&client, path).crash_mark());
    let both = MultiLock::new([first.clone(), last.clone()]);
    let holder = last.acquire().await.unwrap();
    let first_is_clean = async || {
        let guard = soon(first.acquire()).await.unwrap();
        assert_eq!(guard.previous(), &Previous::Clean);
        guard.release().await.unwrap();
    };
    let late = both.acquire_timeout(LIMIT).await;
    assert!(late.is_err(), "{late:?}");
    first_is_clean().await;
    assert!(both.try_acquire().await.unwrap().is_none());
    first_is_clean().await;
    let acquiring = tokio::spawn({
        let both = both.clone();
        async move { both.acquire().await }
    });
    place.until_children("/b", 3).await;
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    first_is_clean().await;
    holder.release().await.unwrap();
}

async fn lock_delay_is_waited_after_a_crash_only(place: Place) {
    const DELAY: Duration = Duration::from_millis(300);
    let lock = Lock::new(&place.client().await, "/marked").lock_delay(DELAY);
    drop(lock.acquire().await.unwrap());
    let started = Instant::now();
    let guard = soon(lock.acquire()).await.unwrap();
    assert!(started.elapsed() >= DELAY);
    assert!(matches!(guard.previous(), Previous::Crashed(_)));
    guard.release().await.unwrap();
}

async fn giving_up_in_the_lock_delay_restores_the_mark(place: Place) {
    let client = place.client().await;
    let crashed = marked(&client).acquire().await.unwrap();
    let token = crashed.token();
    crashed.note("copied 3 of 5").await.unwrap();
    drop(crashed);
    place.until_children("/marked", 1).await;
    let (before, stat) = place.outside().get("/marked/held").await.unwrap();
    let patient = marked(&client).lock_delay(Duration::from_secs(60));
    let acquiring = tokio::spawn(async move { patient.acquire().await });
    // It has written the mark, and waits.
    soon(async {
        let written = |now: Option<zk::Stat>| now.is_some_and(|now| now.mzxid > stat.mzxid);
        while !written(place.outside().exists("/marked/held").await.unwrap()) {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
    acquiring.abort();
    place.until_children("/marked", 1).await;
    let (after, _) = place.outside().get("/marked/held").await.unwrap();
    assert_eq!(after, before);
    let next = soon(marked(&client).acquire()).await.unwrap();
    assert_eq!(crash(&next).1, Some(token));
    next.release().await.unwrap();
}

async fn note_of_any_size_is_written_or_refused(place: Place) {
    let (proxy, client) = place.counted().await;
    let guard = marked(&client).acquire().await.unwrap();
    guard.note(vec![0xff; 64 << 10]).await.unwrap();
    let refused = soon(guard.note(vec![b'x'; 2 << 20])).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    assert_eq!(proxy.connections(), 1);
    guard.release().await.unwrap();
}

async fn without_a_mark_nobody_knows(place: Place) {
    let guard = Lock::new(&place.client().await, "/plain")
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.previous(), &Previous::Unknown);
    let refused = guard.note("x").await;
    assert_fails!(refused, ErrorKind::Unsupported { .. });
    assert_eq!(
        place.outside().exists("/plain/held").await,
        Ok(None::<zk::Stat>)
    );
}
