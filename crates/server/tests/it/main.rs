//! Integration tests of the server, through sockets and its public API.
#![allow(clippy::unwrap_used, reason = "tests")]

mod apache;
mod files;
mod hostile;
mod nodes;
mod rules;
mod security;
mod service;
mod sessions;
mod traps;

use std::time::Duration;

use bellwether_testkit::{Body, ConnectOptions, RawClient, Request, TestServer};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::EventKind;
use bellwether_wire::stat::Stat;

/// A server with the usual test settings, and a client with a session on it.
async fn server_and_client() -> (TestServer, RawClient) {
    let server = TestServer::start().await.unwrap();
    let client = client_of(&server).await;
    (server, client)
}

async fn client_of(server: &TestServer) -> RawClient {
    RawClient::connect(server.address()).await.unwrap()
}

/// A client whose session expires after `timeout_ms` of silence.
async fn client_with_timeout(server: &TestServer, timeout_ms: u64) -> RawClient {
    let options = ConnectOptions {
        timeout: Duration::from_millis(timeout_ms),
        ..ConnectOptions::default()
    };
    let client = RawClient::connect_with(server.address(), &options);
    client.await.unwrap()
}

/// Reply to a request that must succeed.
async fn ok(client: &mut RawClient, request: Request) -> Body {
    client.call(request).await.unwrap().ok().unwrap()
}

/// Reply to a request that must be refused.
async fn refusal(client: &mut RawClient, request: Request) -> ErrorCode {
    let reply = client.call(request.clone()).await.unwrap();
    match reply.outcome {
        Err(code) => code,
        Ok(body) => panic!("{request:?} was carried out: {body:?}"),
    }
}

/// The path of a created node.
async fn created(client: &mut RawClient, request: Request) -> String {
    match ok(client, request).await {
        Body::Path(path) | Body::PathStat(path, _) => path,
        body => panic!("not the reply to a create: {body:?}"),
    }
}

async fn stat(client: &mut RawClient, path: &str) -> Stat {
    *ok(client, Request::exists(path)).await.stat().unwrap()
}

async fn data(client: &mut RawClient, path: &str) -> Option<Vec<u8>> {
    match ok(client, Request::get_data(path)).await {
        Body::DataStat(data, _) => data,
        body => panic!("not the reply to getData: {body:?}"),
    }
}

async fn children(client: &mut RawClient, path: &str) -> Vec<String> {
    match ok(client, Request::get_children(path)).await {
        Body::Children(names) => names,
        body => panic!("not the reply to getChildren: {body:?}"),
    }
}

async fn exists(client: &mut RawClient, path: &str) -> bool {
    client
        .call(Request::exists(path))
        .await
        .unwrap()
        .outcome
        .is_ok()
}

/// The events received so far, in short form: all that precede the reply to a ping.
async fn events(client: &mut RawClient) -> Vec<(EventKind, String)> {
    ok(client, Request::Ping).await;
    let events = client.take_events();
    events.into_iter().map(|e| (e.kind, e.path)).collect()
}

/// The next event, in short form.
async fn event(client: &mut RawClient) -> (EventKind, String) {
    let event = client.receive_event().await.unwrap();
    (event.kind, event.path)
}

/// Polls until `condition` holds, for conditions without a notification.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .is_err()
    {
        panic!("waited too long until {what}");
    }
}
