//! The heartbeat of a session goes on, whatever the program does.

use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_client::{Client, CreateMode};
use bellwether_testkit::{Cut, FaultProxy, Op};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::handshake::{REQUEST_BYTES, granted};
use crate::place::{Place, soon, until_connections};

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
    // A batch that waits is a mistake of its author, and not the end of the session.
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
    // What was held back has left with a ping.
    soon(batch.join().unwrap()).await.unwrap();
    assert_eq!(client.connections(), 1);
}

/// A subscriber that blocks on each line about an end of a connection, as one does whose output nobody reads.
struct Blocked {
    entered: Arc<Notify>,
    released: Mutex<Receiver<()>>,
}

impl Subscriber for Blocked {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("bellwether_client")
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if message.0.contains("connection ended") {
            self.entered.notify_one();
            // An error says that the test is over.
            let _ = self.released.lock().unwrap().recv();
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{value:?} ");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_blocks_does_not_stop_the_heartbeat() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let (release, released) = channel();
    let entered = Arc::new(Notify::new());
    let blocked = Blocked {
        entered: entered.clone(),
        released: Mutex::new(released),
    };
    tracing::subscriber::set_global_default(blocked).unwrap();
    proxy.cut(Cut::Close).await;
    soon(entered.notified()).await;
    until_connections(&client, 2).await;
    two_timeouts_of_pings(&proxy).await;
    assert_eq!(client.connections(), 2);
    client.exists("/").await.unwrap();
    drop(release);
}

/// A server that opens a session and then drops the connection at once, whenever it is asked.
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
