//! Three servers of which one is always about to stop.

use std::time::Duration;

use bellwether_client::{Client, CreateMode, Error, WatchMode};
use bellwether_testkit::Ensemble;

use crate::support::place::soon;

/// Reads, retried over lost connections.
async fn current(client: &Client) -> (u64, i32) {
    soon(async {
        loop {
            // The next server may lag behind the lost one.
            let read = client.batch(|client| (client.sync("/"), client.get("/n")));
            if let (Ok(()), Ok((data, stat))) = (read.0.await, read.1.await) {
                return (
                    u64::from_be_bytes(data[..].try_into().unwrap()),
                    stat.version,
                );
            }
            assert!(!client.state().is_ended());
        }
    })
    .await
}

/// Makes `count` changes, each of which must take effect exactly once, even if its outcome is unknown at first.
async fn change(client: &Client, number: &mut u64, version: &mut i32, count: u64) -> u64 {
    let mut uncertain = 0;
    for _ in 0..count {
        *number += 1;
        loop {
            match soon(client.set("/n", &number.to_be_bytes(), Some(*version))).await {
                Ok(stat) => {
                    assert_eq!(stat.version, *version + 1, "another client writes");
                    *version = stat.version;
                    break;
                }
                Err(Error::NotSent) => {
                    let (data, found) = current(client).await;
                    assert_eq!((data, found), (*number - 1, *version), "it was sent");
                }
                Err(Error::Unknown) => {
                    uncertain += 1;
                    let (data, found) = current(client).await;
                    if data == *number {
                        assert_eq!(found, *version + 1, "it took effect more than once");
                        *version = found;
                        break;
                    }
                    assert_eq!((data, found), (*number - 1, *version));
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    uncertain
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_whose_members_stop_and_start_keeps_its_promises() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let connect = Client::connect(ensemble.connect_string());
    let client = connect
        .session_timeout(Duration::from_secs(30))
        .await
        .unwrap();
    let connect = Client::connect(ensemble.connect_string());
    let watcher = connect
        .session_timeout(Duration::from_secs(30))
        .await
        .unwrap();
    client
        .create("/n", &0_u64.to_be_bytes(), CreateMode::Persistent)
        .await
        .unwrap();
    client
        .create("/e", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let mut stream = watcher.watch("/n", WatchMode::Persistent).await.unwrap();
    let (mut number, mut version, mut uncertain) = (0, 0, 0);
    uncertain += change(&client, &mut number, &mut version, 100).await;
    for round in 0..4 {
        // The leader in one round, a follower in the next.
        let leader = ensemble.leader().await.unwrap();
        let member = if round % 2 == 0 {
            leader
        } else {
            (leader + 1) % 3
        };
        let busy = tokio::spawn({
            let client = client.clone();
            let (mut number, mut version) = (number, version);
            async move {
                let uncertain = change(&client, &mut number, &mut version, 300).await;
                (number, version, uncertain)
            }
        });
        ensemble.kill(member);
        let done = tokio::time::timeout(Duration::from_secs(60), busy).await;
        let (new_number, new_version, more) = done.unwrap().unwrap();
        (number, version) = (new_number, new_version);
        uncertain += more;
        ensemble.restart(member).await.unwrap();
    }
    eprintln!(
        "{number} changes, {uncertain} uncertain, {} connections",
        client.connections()
    );
    assert_eq!(current(&client).await, (number, version));
    assert_eq!(
        u64::try_from(version).unwrap(),
        number,
        "each took effect once"
    );
    let own = client.exists("/e").await.unwrap().unwrap();
    assert_eq!(own.ephemeral_owner, client.session_id(), "the same session");
    // The watch of the other session is still armed.
    soon(async { while watcher.sync("/").await.is_err() {} }).await;
    while futures_util::FutureExt::now_or_never(tokio::task::unconstrained(stream.next())).is_some()
    {
    }
    change(&client, &mut number, &mut version, 1).await;
    soon(stream.next()).await.unwrap();
}
