//! Options of a lock, and what it reports.

use std::time::{Duration, SystemTime};

use bellwether::blocking::{self, Wait};
use bellwether::{Barrier, Election, ErrorKind, Lock, RwLock, Semaphore, SimpleLock, connect, zk};
use bellwether_testkit::{Op, TestServer};
use futures_util::StreamExt;

use crate::support::place::{Place, soon};

on_both_engines! {
    acl_keeps_others_out,
    full_line_is_refused,
    oversized_message_is_refused,
    progress_goes_on_over_an_outage,
    progress_tells_place_and_holder,
    progress_counts_those_who_hold_together,
    progress_of_a_candidate_tells_since_when_another_leads,
    write_under_a_hold_is_made_only_while_it_is_held,
}

async fn acl_keeps_others_out(place: Place) {
    let address = format!("{}{}", place.server(), place.chroot());
    let member = connect(address)
        .auth("digest", "group:secret")
        .await
        .unwrap();
    let lock = Lock::new(&member, "/owned").acl([zk::Acl::creator()]);
    let guard = lock.acquire().await.unwrap();
    let node = format!("/owned/{}", guard.node());
    let outside = place.outside();
    assert_eq!(outside.get(&node).await, Err(zk::Error::NO_AUTH));
    assert_eq!(outside.delete(&node, None).await, Err(zk::Error::NO_AUTH));
    let stranger = Lock::new(&place.client().await, "/owned").acquire().await;
    assert_fails!(
        stranger,
        ErrorKind::Refused {
            source: zk::Error::NO_AUTH,
            ..
        }
    );
    guard.release().await.unwrap();
}

async fn full_line_is_refused(place: Place) {
    let lock = Lock::new(&place.client().await, "/short").line_max(2);
    let holder = lock.acquire().await.unwrap();
    let second = lock.join().await.unwrap();
    let third = lock.acquire().await;
    assert_fails!(third, ErrorKind::Full { depth: 2, .. });
    place.until_children("/short", 2).await;
    holder.release().await.unwrap();
    let guard = soon(second.turn()).await.unwrap();
    guard.release().await.unwrap();
}

async fn oversized_message_is_refused(place: Place) {
    let client = place.client().await;
    let refused = Lock::new(&client, "/verbose")
        .message("x".repeat(100_000))
        .acquire()
        .await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    assert!(place.children("/verbose").await.is_empty());
    let huge = "x".repeat(2 << 20);
    let refused = SimpleLock::new(&client, "/verbose/simple").message(&huge);
    let refused = soon(refused.acquire()).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    let refused = Barrier::new(&client, "/verbose/barrier").message(&huge);
    let refused = soon(refused.set()).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    let leadership = Election::new(&client, "/verbose/election");
    let leadership = leadership.campaign().await.unwrap();
    let refused = soon(leadership.set_value(&huge)).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    leadership.resign().await.unwrap();
}

async fn progress_goes_on_over_an_outage(place: Place) {
    let first = Lock::new(&place.client().await, "/shown").message("first");
    let first = first.acquire().await.unwrap();
    let second = Lock::new(&place.client().await, "/shown").message("second");
    let second = second.join().await.unwrap();
    let (proxy, client) = place.proxied(Duration::from_secs(20)).await;
    let third = Lock::new(&client, "/shown").join().await.unwrap();
    let mut progress = third.progress();
    assert_eq!(soon(progress.next()).await.unwrap().ahead, 2);
    // The next list request is lost.
    let lost = proxy.drop_request(Op::GetChildren);
    let (now, ()) = tokio::join!(soon(progress.next()), async {
        lost.happened().await.unwrap();
        first.release().await.unwrap();
    });
    let now = now.expect("the place is still there");
    assert_eq!(now.ahead, 1);
    drop(second);
}

async fn progress_tells_place_and_holder(place: Place) {
    let client = place.client().await;
    let holder = Lock::new(&client, "/shown")
        .message("first")
        .owner("one")
        .acquire()
        .await
        .unwrap();
    let second = Lock::new(&client, "/shown")
        .message("second")
        .join()
        .await
        .unwrap();
    let third = Lock::new(&client, "/shown").join().await.unwrap();
    let mut progress = third.progress();
    let turn = tokio::spawn(third.turn());

    let now = soon(progress.next()).await.unwrap();
    let first = now.holder.unwrap();
    assert_eq!(now.ahead, 2);
    assert_eq!(
        (first.message.as_deref(), first.owner.as_str(), first.pid),
        (Some("first"), "one", std::process::id())
    );
    holder.release().await.unwrap();
    let now = soon(progress.next()).await.unwrap();
    assert_eq!(now.ahead, 1);
    assert_eq!(now.holder.unwrap().message.as_deref(), Some("second"));
    drop(second);
    let guard = soon(turn).await.unwrap().unwrap();
    let now = soon(progress.next()).await.unwrap();
    assert_eq!((now.ahead, now.holder), (0, None));
    assert_eq!(soon(progress.next()).await, None);
    guard.release().await.unwrap();
}

async fn progress_counts_those_who_hold_together(place: Place) {
    let client = place.client().await;
    let lock = RwLock::new(&client, "/shared");
    let first = lock.read().await.unwrap();
    let second = lock.read().await.unwrap();
    let writer = lock.join_write().await.unwrap();
    let reader = lock.join_read().await.unwrap();
    for (mut progress, ahead) in [(writer.progress(), 2), (reader.progress(), 3)] {
        let now = soon(progress.next()).await.unwrap();
        assert_eq!((now.ahead, now.holders), (ahead, 2));
        assert_eq!(now.holder.unwrap().pid, std::process::id());
    }
    drop((first, second));
    let writer = soon(writer.turn()).await.unwrap();
    let mut progress = reader.progress();
    let now = soon(progress.next()).await.unwrap();
    assert_eq!((now.ahead, now.holders), (1, 1));
    drop(writer);
    let reader = soon(reader.turn()).await.unwrap();
    assert_eq!(soon(progress.next()).await.unwrap().ahead, 0);
    assert_eq!(soon(progress.next()).await, None);
    reader.release().await.unwrap();

    let permits = Semaphore::new(&client, "/permits", 3);
    let (one, two) = (permits.acquire().await, permits.acquire_many(2).await);
    let heavy = permits.join_many(2).await.unwrap();
    let light = permits.join().await.unwrap();
    let mut progress = light.progress();
    let now = soon(progress.next()).await.unwrap();
    assert_eq!((now.ahead, now.holders), (3, 2));
    drop((one, heavy));
    let light = soon(light.turn()).await.unwrap();
    assert_eq!(soon(progress.next()).await.unwrap().ahead, 0);
    light.release().await.unwrap();
    two.unwrap().release().await.unwrap();
}

async fn progress_of_a_candidate_tells_since_when_another_leads(place: Place) {
    let before = SystemTime::now() - Duration::from_millis(1);
    let client = place.client().await;
    let election = Election::new(&client, "/leads").crash_mark();
    let leader = election.campaign().await.unwrap();
    let candidate = election.join().await.unwrap();
    let now = soon(candidate.progress().next()).await.unwrap();
    assert_eq!((now.ahead, now.holders), (1, 1));
    let since = now.held_since.unwrap();
    assert!(
        before <= since && since <= SystemTime::now(),
        "{before:?} {since:?}"
    );
    leader.resign().await.unwrap();
    let leader = soon(candidate.turn()).await.unwrap();
    leader.resign().await.unwrap();
}

async fn write_under_a_hold_is_made_only_while_it_is_held(place: Place) {
    let guard = Lock::new(&place.client().await, "/guarded")
        .acquire()
        .await
        .unwrap();
    let mut write = guard.write();
    write = write
        .create("/state", "1")
        .set("/state", "2", Some(0.into()));
    write.commit().await.unwrap();
    let (data, _) = place.outside().get("/state").await.unwrap();
    assert_eq!(&data[..], b"2");

    // A multi that cannot succeed changes nothing.
    let mut write = guard.write();
    write = write.set("/state", "3", None).delete("/missing", None);
    let refused = write.commit().await;
    assert_fails!(
        refused,
        ErrorKind::Refused {
            index: Some(1),
            source: zk::Error::NO_NODE,
            ..
        }
    );
    let mut write = guard.write();
    write = write.set("state", "3", None);
    let refused = write.commit().await;
    assert_fails!(refused, ErrorKind::BadPath(_));

    // A message to the holder changes its node, and ends nothing.
    let node = format!("/guarded/{}", guard.node());
    let outside = place.outside();
    outside.set(&node, b"unlock", None).await.unwrap();
    let mut write = guard.write();
    write = write.set("/state", "4", None);
    write.commit().await.unwrap();

    outside.delete(&node, None).await.unwrap();
    let mut write = guard.write();
    write = write.set("/state", "late", None);
    let refused = write.commit().await;
    assert_fails!(refused, ErrorKind::NotHeld);
    let (data, _) = outside.get("/state").await.unwrap();
    assert_eq!(&data[..], b"4");
}

/// The only runtime is that of the server.
#[test]
fn blocking_program_does_the_same() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(TestServer::start()).unwrap();
    let client = connect(server.connect_string()).wait().unwrap();
    let lock = Lock::new(&client, "/blocking");
    let guard = lock.acquire().wait().unwrap();
    let waiting = lock.join().wait().unwrap();
    let mut places = blocking::iter(waiting.progress());
    assert_eq!(places.next().unwrap().ahead, 1);
    let next = std::thread::spawn(move || waiting.turn().wait().unwrap());
    let token = guard.token();
    guard.release().wait().unwrap();
    let next = next.join().unwrap();
    assert!(next.token() > token && next.is_held());
    next.release().wait().unwrap();
    drop(lock);
    drop(places);
    client.close().wait();
    assert_eq!(server.session_count().unwrap(), 0);
}
