//! Sessions whose first write is not on disk yet.

use std::sync::Arc;
use std::time::Duration;

use bellwether_server::{Config, Server};
use bellwether_testkit::{ConnectOptions, HeldDisk, RawClient, Request};

use crate::{ok, until};

/// A server on a disk whose syncs the test holds back.
async fn server_on(disk: &HeldDisk) -> Server {
    let config = Config {
        // No session expires by itself.
        tick: Duration::from_secs(60),
        ..Config::default()
    };
    let disk = Arc::new(disk.clone());
    let builder = Server::builder().config(config).disks(disk.clone(), disk);
    builder.start().await.unwrap()
}

/// The id of the next session can be predicted, and its password is derived from the id. A client that asked for that session before it was
/// on disk was answered together with the client that opened it, and its connection never ended.
#[tokio::test]
async fn a_session_that_is_not_on_disk_yet_is_nobodys_to_take_up() {
    let disk = HeldDisk::new();
    let server = server_on(&disk).await;
    let address = server.addresses()[0];
    let first = RawClient::connect(address).await.unwrap();
    let next_id = first.session_id() + 1;
    let guess = ConnectOptions {
        session_id: next_id,
        password: server.hooks().session_password(next_id).to_vec(),
        ..ConnectOptions::default()
    };
    disk.hold();
    let mut owner = RawClient::open(address).await.unwrap();
    let opening = ConnectOptions::default().encode();
    owner.send_bytes(&opening).await.unwrap();
    until("the session is asked for", || server.sessions() == 2).await;
    let mut intruder = RawClient::connect_with(address, &guess).await.unwrap();
    assert!(intruder.is_refused());
    intruder.closed().await.unwrap();
    disk.release();
    let reply = owner.receive_raw().await.unwrap();
    assert_eq!(
        reply[8..16],
        next_id.to_be_bytes(),
        "the session is its own"
    );
    ok(&mut owner, Request::create("/a", "")).await;
    until("the intruder is gone", || server.connections() == 2).await;
    // Once on disk, any client with its password can resume it.
    let back = RawClient::connect_with(address, &guess).await.unwrap();
    assert!(!back.is_refused());
    server.shutdown().await;
}

/// A client that disconnects before its session is on disk leaves neither a connection nor a count behind.
#[tokio::test]
async fn a_client_that_leaves_before_its_session_is_on_disk_leaves_nothing_behind() {
    let disk = HeldDisk::new();
    let server = server_on(&disk).await;
    let address = server.addresses()[0];
    let mut other = RawClient::connect(address).await.unwrap();
    disk.hold();
    let mut hasty = RawClient::open(address).await.unwrap();
    let opening = ConnectOptions::default().encode();
    hasty.send_bytes(&opening).await.unwrap();
    until("the session is asked for", || server.sessions() == 2).await;
    drop(hasty);
    disk.release();
    until("the hasty client is gone", || server.connections() == 1).await;
    ok(&mut other, Request::create("/a", "")).await;
    server.shutdown().await;
}
