//! Folders of an Apache server that was killed while it wrote.

use anyhow::Result;
use bellwether_server::Server;
use bellwether_testkit::{Apache, Body, RawClient, Request};

/// Number of kills: each leaves a different end of the log.
const ROUNDS: usize = 2;

/// Enough that the server is killed before it has accepted all of them. Each batch is many times the 8 KiB that Apache buffers before it
/// writes, and a record is within one sector.
const WRITES: usize = 20_000;

#[tokio::test]
async fn what_apache_leaves_that_is_killed_under_load_has_all_that_it_acknowledged() {
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let apache = Apache::builder().data_dir(folder.path()).start();
        let acknowledged = kill_under_load(apache.await.unwrap(), round).await.unwrap();
        let server = Server::builder().data(folder.path()).start().await.unwrap();
        let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
        let found = client.call(Request::get_data("/a")).await.unwrap();
        let Ok(Body::DataStat(_, stat)) = found.outcome else {
            panic!("{found:?}");
        };
        let found = usize::try_from(stat.version).unwrap();
        assert!(
            (acknowledged..=WRITES).contains(&found),
            "round {round}: {found} of {acknowledged}"
        );
        server.shutdown().await;
    }
}

/// Kills the server while many writes of one client are in flight and those of another are answered; returns how many were answered.
async fn kill_under_load(mut apache: Apache, round: usize) -> Result<usize> {
    let mut loading = RawClient::connect(apache.address()).await?;
    let mut other = RawClient::connect(apache.address()).await?;
    other.call(Request::create("/a", "")).await?.ok()?;
    let writes: Vec<_> = (0..WRITES)
        .map(|number| Request::set_data("/a", vec![0xAB; 200 + number % 100]))
        .collect();
    let killing = async {
        for _ in 0..20 * (round + 1) {
            other.call(Request::set_data("/", "")).await?.ok()?;
        }
        apache.kill();
        anyhow::Ok(())
    };
    // The server may be gone before everything is sent.
    let (_, killed) = tokio::join!(loading.send_all(&writes), killing);
    killed?;
    let mut acknowledged = 0;
    while loading.receive_reply().await.is_ok() {
        acknowledged += 1;
    }
    Ok(acknowledged)
}
