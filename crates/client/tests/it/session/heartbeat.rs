//! The heartbeat of a session continues while the program blocks.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bellwether_client::{Client, CreateMode};
use bellwether_testkit::{BlockedLog, Cut, FaultProxy, Op};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::handshake::{REQUEST_BYTES, granted};
use crate::support::place::{Place, soon, until_connections};

const SESSION_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Waits until a session has pinged as often as it does in two of its timeouts.
async fn two_timeouts_of_pings(proxy: &FaultProxy) {
    proxy.reset_counts();
    soon(async {
        while proxy.count(Op::Ping) < 12 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_busy_session_does_not_starve_the_heartbeat_of_another() {
    let place = Place::embedded().await;
    let (proxy, quiet) = place.proxied(SESSION_TIMEOUT).await;
    let busy = place.client().await;
    busy.create("/big", &vec![0; 500_000], CreateMode::Persistent)
        .await
        .unwrap();
    let flood = tokio::spawn(async move {
        loop {
            let large = busy.get("/big");
            let small: Vec<_> = (0..1_000).map(|_| busy.exists("/")).collect();
            large.await.unwrap();
            for reply in small {
                reply.await.unwrap();
            }
        }
    });
    two_timeouts_of_pings(&proxy).await;
    assert_eq!(quiet.connections(), 1);
    assert!(!flood.is_finished());
    flood.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_blocks_does_not_stop_the_heartbeat() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let (release, released) = channel::<()>();
    // A batch that waits is a mistake of its author, but does not end the session.
    let blocked = client.clone();
    let batch = std::thread::spawn(move || {
        blocked.batch(|client| {
            let reply = client.exists("/");
            released.recv().unwrap_err();
            reply
        })
    });
    two_timeouts_of_pings(&proxy).await;
    drop(release);
    // The requests that were held back were sent with a ping.
    soon(batch.join().unwrap()).await.unwrap();
    assert_eq!(client.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_blocks_does_not_stop_the_heartbeat() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let log = BlockedLog::install("bellwether_client", "connection ended").unwrap();
    proxy.cut(Cut::Close).await;
    soon(log.blocks()).await;
    until_connections(&client, 2).await;
    two_timeouts_of_pings(&proxy).await;
    assert_eq!(client.connections(), 2);
    client.exists("/").await.unwrap();
    drop(log);
}

/// A server that opens a session and then drops the connection at once.
#[tokio::test]
async fn a_server_that_drops_every_session_is_not_stormed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = arrived.send(Instant::now());
            let mut request = [0; REQUEST_BYTES];
            stream.read_exact(&mut request).await.unwrap();
            let reply = granted(10_000, false);
            stream.write_all(&reply).await.unwrap();
        }
    });
    let client = Client::connect(&address).await.unwrap();
    let first = soon(arrivals.recv()).await.unwrap();
    let mut last = first;
    for _ in 0..7 {
        last = soon(arrivals.recv()).await.unwrap();
    }
    // Pauses of at least 10, 20, 40 … ms.
    assert!(
        last - first >= Duration::from_millis(630),
        "{:?}",
        last - first
    );
    drop(client);
}
