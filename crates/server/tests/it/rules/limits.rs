//! What is too much.

use std::net::SocketAddr;
use std::time::Duration;

use bellwether_server::Config;
use bellwether_testkit::{RawClient, Request, TestServer};

use crate::{client_of, ok, server_and_client, stat, until};

// --- 8: limits -----------------------------------------------------------------------------------------

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once_and_makes_room_when_another_ends() {
    let server = TestServer::with(Config {
        connections_max: 2,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut one = client_of(&server).await;
    let mut two = client_of(&server).await;
    let mut three = RawClient::open(server.address()).await.unwrap();
    three.closed().await.unwrap();
    ok(&mut one, Request::CloseSession).await;
    one.closed().await.unwrap();
    until("there is room", || server.connection_count().unwrap() == 1).await;
    ok(&mut client_of(&server).await, Request::Ping).await;
    ok(&mut two, Request::Ping).await;
}

#[tokio::test]
async fn connections_are_counted_by_address() {
    let six: SocketAddr = "[::1]:0".parse().unwrap();
    let four: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = Config {
        listen: vec![four, six],
        connections_per_address_max: 1,
        ..TestServer::config()
    };
    let server = bellwether_server::Server::start(config).await.unwrap();
    let [four, six] = server.addresses() else {
        panic!("two addresses")
    };
    let _first = RawClient::connect(four).await.unwrap();
    let mut second = RawClient::open(four).await.unwrap();
    second.closed().await.unwrap();
    let mut other = RawClient::connect(six).await.unwrap();
    ok(&mut other, Request::Ping).await;
    server.shutdown().await;
}

#[tokio::test]
async fn the_longest_frame_is_read_and_a_longer_one_is_not() {
    let (server, mut client) = server_and_client().await;
    // The largest create of facts that were measured: one byte of data more is one too many.
    let create = |bytes| Request::create("/0123456789", vec![b'x'; bytes]);
    assert_eq!(create(1_048_517).encode(1).len(), 4 + 0xF_FFFF);
    ok(&mut client, create(1_048_517)).await;
    let mut other = client_of(&server).await;
    // It is refused by its length, before the rest has come.
    let long = Request::set_data("/0123456789", vec![0; 1_048_576]).encode(1);
    other.send_bytes(&long[..8]).await.unwrap();
    other.closed().await.unwrap();
    server.lower_frame_limit(100).unwrap();
    client.send(&Request::create("/a", [0; 100])).await.unwrap();
    client.closed().await.unwrap();
}

#[tokio::test]
async fn more_requests_than_may_wait_are_all_answered_in_order() {
    let server = TestServer::with(Config {
        outstanding_max: 1,
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut client = client_of(&server).await;
    ok(&mut client, Request::create("/a", "")).await;
    let segment: Vec<_> = (0..500)
        .map(|number| match number % 3 {
            0 => Request::set_data("/a", "x"),
            1 => Request::get_data("/a"),
            _ => Request::exists("/none"),
        })
        .collect();
    for xid in client.send_all(&segment).await.unwrap() {
        assert_eq!(client.receive_reply().await.unwrap().xid, xid);
    }
    assert_eq!(stat(&mut client, "/a").await.version, 167);
}

#[tokio::test]
async fn who_says_nothing_or_half_a_thing_is_sent_away() {
    let server = TestServer::with(Config {
        handshake_timeout: Duration::from_millis(100),
        ..TestServer::config()
    })
    .await
    .unwrap();
    let mut established = client_of(&server).await;
    for beginning in [&b""[..], b"ru", b"\0\0\0\x2d\0", b"stmk\0\0"] {
        let mut client = RawClient::open(server.address()).await.unwrap();
        client.send_bytes(beginning).await.unwrap();
        client.closed().await.unwrap();
    }
    ok(&mut established, Request::Ping).await;
}
