//! A session has no more ephemeral nodes than the servers can remove at its end.

use bellwether::{AcquireError, Group, Lock, SimpleLock, StateError, zk};

use crate::place::{Place, soon};

on_both_engines! {
    t82_session_refuses_more_ephemeral_paths_than_fit_one_transaction,
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
        matches!(refused, StateError::TooManyEphemerals { .. }),
        "{refused:?}"
    );
    // Locks count in the same session.
    let lock = Lock::new(&client, format!("/{}", long("l")))
        .acquire()
        .await;
    assert!(
        matches!(lock, Err(AcquireError::TooManyEphemerals { .. })),
        "{lock:?}"
    );
    let simple = SimpleLock::new(&client, format!("/{}", long("s")))
        .acquire()
        .await;
    assert!(
        matches!(simple, Err(AcquireError::TooManyEphemerals { .. })),
        "{simple:?}"
    );
    let unmade = place.outside().check_stat(&format!("/{}", long("l"))).await;
    assert_eq!(unmade.unwrap(), None);
    // One that leaves makes room, and the end of the session removes them all.
    soon(members.pop().unwrap().leave()).await;
    let again = soon(group.join_as(long("n"), "")).await.unwrap();
    drop((again, members, group));
    soon(client.close()).await;
    let path = format!("/{}", long("g"));
    soon(async {
        loop {
            match place.outside().list_children(&path).await {
                Ok(names) if names.is_empty() => return,
                Err(zk::Error::NoNode) => return,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}
