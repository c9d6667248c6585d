//! The number of ephemeral nodes of a session is limited to what the servers can delete when it ends.

use bellwether::{Counter, Error, ErrorKind, Group, Lock, Queue, SimpleLock, zk};
use bellwether_testkit::Direction;
use tokio::task::JoinSet;

use crate::support::place::{Place, soon};

on_both_engines! {
    t82_receipts_are_refused_too_and_not_all_are_kept,
    t82_session_refuses_more_ephemeral_paths_than_fit_one_transaction,
    t82_session_refuses_more_claims_than_fit_one_transaction,
}

async fn t82_session_refuses_more_ephemeral_paths_than_fit_one_transaction(place: Place) {
    // Long names, so that few nodes make many bytes.
    let long = |letter: &str| letter.repeat(60_000);
    let client = place.client().await;
    let group = Group::new(&client, format!("/{}", long("g")));
    let mut members = Vec::new();
    let refused = loop {
        match soon(group.join_as(format!("{}{}", long("m"), members.len()), "")).await {
            Ok(member) => members.push(member),
            Err(error) => break error,
        }
        assert!(members.len() < 20, "they would not fit one frame");
    };
    assert!(
        matches!(refused.kind, ErrorKind::TooManyEphemerals { .. }),
        "{refused:?}"
    );
    // Locks count in the same session.
    let lock = Lock::new(&client, format!("/{}", long("l")))
        .acquire()
        .await;
    assert_fails!(lock, ErrorKind::TooManyEphemerals { .. });
    let simple = SimpleLock::new(&client, format!("/{}", long("s")))
        .acquire()
        .await;
    assert_fails!(simple, ErrorKind::TooManyEphemerals { .. });
    let unmade = place.outside().exists(&format!("/{}", long("l"))).await;
    assert_eq!(unmade.unwrap(), None);
    // A member that leaves makes room, and the end of the session removes them all.
    soon(members.pop().unwrap().leave()).await;
    let again = soon(group.join_as(long("n"), "")).await.unwrap();
    drop((again, members, group));
    soon(client.close()).await;
    let path = format!("/{}", long("g"));
    soon(async {
        loop {
            match place.outside().children(&path).await {
                Ok(names) if names.is_empty() => return,
                Err(zk::Error::NO_NODE) => return,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

async fn t82_receipts_are_refused_too_and_not_all_are_kept(place: Place) {
    const ADDITIONS: usize = 20;
    let (proxy, client) = place.counted().await;
    let counter = Counter::new(&client, format!("/{}/hits", "c".repeat(60_000)));
    // From the second one on, consecutive additions need no read.
    counter.add(1).await.unwrap();
    counter.add(1).await.unwrap();
    // No addition ends before all have begun, except those that are refused.
    proxy.hold(Direction::ToClient);
    let mut additions = JoinSet::new();
    for _ in 0..ADDITIONS {
        let counter = counter.clone();
        additions.spawn(async move { counter.add(1).await });
    }
    let refused = soon(additions.join_next()).await.unwrap().unwrap();
    assert_fails!(refused, ErrorKind::TooManyEphemerals { .. });
    proxy.resume(Direction::ToClient);
    let mut made = 2;
    for addition in soon(additions.join_all()).await {
        match addition {
            Ok(_) => made += 1,
            Err(Error {
                kind: ErrorKind::TooManyEphemerals { .. },
                ..
            }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(made > 2);
    assert_eq!(counter.get().await.unwrap(), made);
    // What the additions leave behind does not take room from others.
    let lock = Lock::new(&client, format!("/{}", "l".repeat(60_000)));
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

async fn t82_session_refuses_more_claims_than_fit_one_transaction(place: Place) {
    let path = format!("/{}", "q".repeat(20_000));
    let producer = Queue::<Vec<u8>>::new(&place.client().await, &path);
    for _ in 0..50 {
        producer.put(&Vec::new()).await.unwrap();
    }
    let queue = Queue::<Vec<u8>>::new(&place.client().await, &path);
    let mut claims = Vec::new();
    let refused = loop {
        match soon(queue.try_take()).await {
            Ok(claim) => claims.push(claim.unwrap()),
            Err(error) => break error,
        }
        assert!(claims.len() < 50, "they would not fit one frame");
    };
    assert!(
        matches!(refused.kind, ErrorKind::TooManyEphemerals { .. }),
        "{refused:?}"
    );
    // Settling a claim makes room, and the refused item is still there.
    claims.pop().unwrap().ack().await.unwrap();
    let again = soon(queue.try_take()).await.unwrap().unwrap();
    assert_eq!(again.attempts(), 1);
    again.ack().await.unwrap();
}
