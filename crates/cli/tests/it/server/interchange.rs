//! What `kill -9` leaves of `bellwether serve`, read by Apache's server.

use std::net::SocketAddr;

use bellwether_testkit::{Apache, Contents, RawClient, Request, read_contents};
use rustix::process::Signal;

use crate::support::bellwether::{bellwether, serve};

/// Writes in flight when the server is killed.
const WRITES: usize = 2000;

/// Number of them acknowledged before.
const ACKNOWLEDGED: usize = 500;

#[tokio::test]
async fn apache_finds_all_that_was_acknowledged_before_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bellwether();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path());
    command.args(["--session-passwords", "apache"]);
    let (mut server, addresses) = serve(&mut command);
    let mut client = RawClient::connect(&addresses[0]).await.unwrap();
    client
        .call(Request::create_ephemeral("/mine"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let writes: Vec<_> = (0..WRITES)
        .map(|n| Request::create(format!("/{n:04}"), "data"))
        .collect();
    client.send_all(&writes).await.unwrap();
    for _ in 0..ACKNOWLEDGED {
        client.receive_reply().await.unwrap().ok().unwrap();
    }
    server.signal(Signal::KILL);
    assert_eq!(server.code(), None);
    // Acknowledgements sent before the kill count too.
    let mut acknowledged = ACKNOWLEDGED;
    while client.receive_reply().await.is_ok() {
        acknowledged += 1;
    }

    let mut apache = Apache::builder()
        .data_dir(folder.path())
        .start()
        .await
        .unwrap();
    let left = contents(apache.address()).await;
    let found = left
        .keys()
        .filter(|path| path[1..].parse::<usize>().is_ok())
        .count();
    assert!(
        (acknowledged..=WRITES).contains(&found),
        "{found} of {acknowledged}"
    );
    // No gap: the writes found are the first ones.
    assert!(left.contains_key(&format!("/{:04}", found - 1)));
    let client = client.reattach(apache.address()).await.unwrap();
    assert!(!client.is_refused());
    assert_eq!(left["/mine"].stat.ephemeral_owner, client.session_id());
    apache.kill();

    let (mut server, addresses) = serve(&mut command);
    assert_eq!(contents(addresses[0].parse().unwrap()).await, left);
    let client = client.reattach(&addresses[0]).await.unwrap();
    assert_eq!(left["/mine"].stat.ephemeral_owner, client.session_id());
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

async fn contents(address: SocketAddr) -> Contents {
    let mut client = RawClient::connect(address).await.unwrap();
    let contents = read_contents(&mut client).await.unwrap();
    client
        .call(Request::CloseSession)
        .await
        .unwrap()
        .ok()
        .unwrap();
    contents
}
