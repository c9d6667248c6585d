//! The server as a library: several in one process, started and stopped at will.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bellwether_server::{Config, MemoryStore, Server, StartError};
use bellwether_testkit::disk::{CrashDisk, Operation};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{RawClient, Request};
use tokio::net::{TcpListener, TcpStream};

use crate::{children, exists, ok, until};

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn client_of(server: &Server) -> RawClient {
    RawClient::connect(server.addresses()[0]).await.unwrap()
}

/// The threads of this process that servers started; every test has a process of its own.
fn server_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| matches!(name.trim(), "writer" | "log" | "door"))
        .count()
}

#[tokio::test]
async fn servers_side_by_side_share_nothing() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::builder().start().await.unwrap());
    }
    for (number, server) in servers.iter().enumerate() {
        assert_ne!(server.addresses()[0].port(), 0);
        let mut client = client_of(server).await;
        ok(&mut client, Request::create(format!("/{number}"), "")).await;
        let names = [number.to_string(), "zookeeper".into()];
        assert_eq!(children(&mut client, "/").await, names);
    }
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn one_server_listens_on_several_addresses() {
    let six: SocketAddr = "[::1]:0".parse().unwrap();
    let config = Config {
        listen: vec![loopback(), six, SocketAddr::from(([127, 0, 0, 2], 0))],
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    assert_eq!(server.addresses().len(), 3);
    let listed: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(server.connect_string(), listed.join(","));
    let mut first = client_of(&server).await;
    ok(&mut first, Request::create("/a", "")).await;
    for address in server.addresses() {
        let mut client = RawClient::connect(address).await.unwrap();
        assert!(exists(&mut client, "/a").await);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_was_shut_down_leaves_nothing_behind() {
    let server = Server::builder().start().await.unwrap();
    until("it has threads", || server_threads() == 3).await;
    let address = server.addresses()[0];
    let mut idle = RawClient::open(address).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(client_of(&server).await);
    }
    let hooks = server.hooks();
    server.shutdown().await;
    assert_eq!(hooks.connections(), 0);
    until("its threads are gone", || server_threads() == 0).await;
    for client in &mut clients {
        client.closed().await.unwrap();
    }
    idle.closed().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
    // The address is free at once, though there were connections a moment ago.
    let again = Server::builder().listen(address).start().await.unwrap();
    again.shutdown().await;
}

#[tokio::test]
async fn what_was_accepted_is_kept_over_a_shutdown() {
    let store = MemoryStore::default();
    let start = || Server::builder().memory(store.clone()).start();
    let server = start().await.unwrap();
    let mut client = client_of(&server).await;
    let sent = vec![Request::create_mode("/n-", "", 2); 300];
    client.send_all(&sent).await.unwrap();
    client.receive_reply().await.unwrap();
    server.shutdown().await;
    let mut answered = 1;
    while client.receive().await.is_ok() {
        answered += 1;
    }
    let server = start().await.unwrap();
    let mut back = client.reattach(server.addresses()[0]).await.unwrap();
    assert!(!back.is_refused());
    let kept = children(&mut back, "/").await.len() - 1;
    assert!(kept >= answered, "{answered} answered, {kept} kept");
    server.shutdown().await;
}

#[tokio::test]
async fn a_dropped_server_stops_too() {
    let server = Server::builder().start().await.unwrap();
    let address = server.addresses()[0];
    let mut client = client_of(&server).await;
    drop(server);
    client.closed().await.unwrap();
    until("its threads are gone", || server_threads() == 0).await;
    let rebound = async {
        while TcpListener::bind(address).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), rebound)
        .await
        .expect("the place is free again");
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let taken = TcpListener::bind(loopback()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::builder().listen(address).start().await.unwrap_err();
    assert!(
        matches!(&error, StartError::Listen { address: at, .. } if *at == address),
        "{error:?}"
    );
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
    let config = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config
    };
    for bad in [
        config(|config| config.listen.clear()),
        config(|config| config.tick = Duration::ZERO),
        config(|config| config.tick = Duration::from_micros(999)),
        config(|config| config.session_timeout_min = Some(Duration::ZERO)),
        config(|config| {
            config.session_timeout_min = Some(Duration::from_micros(999));
            config.session_timeout_max = Some(Duration::from_micros(999));
        }),
        config(|config| config.session_timeout_max = Some(Duration::from_millis(1))),
    ] {
        assert!(Server::start(bad).await.is_err());
    }
    assert_eq!(server_threads(), 0, "a failed start leaves nothing either");
}

/// It would answer reads for ever, from a version that no write follows.
#[tokio::test]
async fn a_server_whose_log_has_failed_takes_nobody_in() {
    let (snapshots, logs) = (CrashDisk::new(), CrashDisk::new());
    let builder = Server::builder().disks(Arc::new(snapshots), Arc::new(logs.clone()));
    let server = builder.start().await.unwrap();
    let mut client = client_of(&server).await;
    let idle = client_of(&server).await;
    logs.fail(Operation::Sync, 1, std::io::ErrorKind::Other);
    assert!(client.call(Request::create("/a", "")).await.is_err());
    server.failed().await;
    let address = server.addresses()[0];
    assert!(RawClient::connect(address).await.is_err());
    assert!(idle.reattach(address).await.is_err());
    server.shutdown().await;
}

#[tokio::test]
async fn counts_follow_clients_as_they_come_and_go() {
    let server = Server::builder().start().await.unwrap();
    let mut client = client_of(&server).await;
    assert_eq!((server.connections(), server.sessions()), (1, 1));
    drop(client_of(&server).await);
    until("it is gone", || server.connections() == 1).await;
    assert_eq!(server.sessions(), 2, "its session is not");
    ok(&mut client, Request::CloseSession).await;
    client.closed().await.unwrap();
    until("both are gone", || server.connections() == 0).await;
    assert_eq!(server.sessions(), 1);
    let answer = four_letter_word(server.addresses()[0], "srvr").await;
    assert!(answer.unwrap().contains("Connections: 1\n"));
    server.shutdown().await;
}

#[tokio::test]
async fn server_in_use_does_not_retire_and_an_unused_one_takes_nobody_in() {
    let server = Server::builder().start().await.unwrap();
    let mut client = client_of(&server).await;
    assert!(!server.retire());
    ok(&mut client, Request::CloseSession).await;
    client.closed().await.unwrap();
    // The connection is removed from the list when its socket is closed, which is a moment later.
    until("the server is idle", || server.retire()).await;
    assert!(RawClient::connect(server.addresses()[0]).await.is_err());
    server.shutdown().await;
}
