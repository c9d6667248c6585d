use std::time::Duration;

use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Apache, Body, Cut, Direction, FaultProxy, RawClient, Request};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;

async fn setup() -> (Apache, FaultProxy, RawClient) {
    let server = Apache::start().await.unwrap();
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let client = RawClient::connect(proxy.address()).await.unwrap();
    (server, proxy, client)
}

async fn exists(address: std::net::SocketAddr, path: &str) -> bool {
    let mut client = RawClient::connect(address).await.unwrap();
    let reply = client.call(Request::exists(path)).await.unwrap();
    assert!(matches!(
        reply.outcome,
        Ok(Body::Stat(_)) | Err(ErrorCode::NoNode)
    ));
    reply.outcome.is_ok()
}

#[tokio::test]
async fn a_swallowed_reply_leaves_its_effect() {
    let (server, proxy, mut client) = setup().await;
    let fault = proxy.swallow_reply(Op::Create);
    let requests = [
        Request::Ping,
        Request::exists("/a").watching(),
        Request::create("/a", ""),
        Request::Ping,
    ];
    client.send_all(&requests).await.unwrap();
    fault.happened().await.unwrap();
    assert_eq!(client.receive_reply().await.unwrap().xid, -2);
    assert_eq!(client.receive_reply().await.unwrap().xid, 1);
    client.receive_event().await.unwrap();
    client.closed().await.unwrap();
    assert!(exists(server.address(), "/a").await);

    // Only the next request is affected.
    let mut client = client.reattach(proxy.address()).await.unwrap();
    client
        .call(Request::create("/b", ""))
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!((proxy.count(Op::Create), proxy.count(Op::Exists)), (2, 1));
    assert_eq!((proxy.connections(), proxy.events()), (2, 1));
    proxy.reset_counts();
    assert!(proxy.counts().is_empty());
}

#[tokio::test]
async fn a_dropped_request_has_no_effect() {
    let (server, proxy, mut client) = setup().await;
    let fault = proxy.drop_request_where(|request| request.path().as_deref() == Some("/b"));
    client
        .call(Request::create("/a", ""))
        .await
        .unwrap()
        .ok()
        .unwrap();
    client.send(&Request::create("/b", "")).await.unwrap();
    fault.happened().await.unwrap();
    client.closed().await.unwrap();
    assert!(!exists(server.address(), "/b").await);
    assert_eq!(proxy.count(Op::Create), 1);
}

#[tokio::test]
async fn held_bytes_come_later() {
    let (server, proxy, mut client) = setup().await;
    proxy.hold(Direction::ToServer);
    client.send(&Request::create("/a", "")).await.unwrap();
    // Another connection of the same proxy is held too; without the proxy everything works.
    assert!(!exists(server.address(), "/a").await);
    assert_eq!(proxy.count(Op::Create), 0);
    proxy.resume(Direction::Both);
    client.receive_reply().await.unwrap().ok().unwrap();

    proxy.hold(Direction::ToClient);
    let mut watcher = RawClient::connect(server.address()).await.unwrap();
    watcher
        .call(Request::exists("/b").watching())
        .await
        .unwrap();
    client.send(&Request::create("/b", "")).await.unwrap();
    watcher.receive_event().await.unwrap();
    client.set_deadline(Duration::from_millis(50));
    client.receive_reply().await.unwrap_err();
    client.set_deadline(Duration::from_secs(10));
    proxy.resume(Direction::ToClient);
    client.receive_reply().await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn cuts_end_what_there_is_and_refusals_what_comes() {
    let (_server, proxy, mut client) = setup().await;
    for how in [Cut::Close, Cut::Reset] {
        proxy.cut(how).await;
        assert_eq!(proxy.connections_now(), 0);
        client.closed().await.unwrap();
        client = client.reattach(proxy.address()).await.unwrap();
        assert!(!client.is_refused());
    }
    proxy.refuse(true);
    RawClient::connect(proxy.address()).await.unwrap_err();
    client.call(Request::Ping).await.unwrap();
    proxy.refuse(false);
    RawClient::connect(proxy.address()).await.unwrap();
}

#[tokio::test]
async fn words_delays_and_ends_pass() {
    let (mut server, proxy, mut client) = setup().await;
    assert_eq!(
        four_letter_word(proxy.address(), "ruok").await.unwrap(),
        "imok"
    );
    let delay = Duration::from_millis(30);
    proxy.delay(Direction::Both, delay);
    let start = std::time::Instant::now();
    client.call(Request::Ping).await.unwrap();
    assert!(start.elapsed() >= 2 * delay);
    server.kill();
    client.closed().await.unwrap();
    RawClient::connect(proxy.address()).await.unwrap_err();
}

#[tokio::test]
async fn a_session_seen_is_ended_past_all_faults() {
    let (server, proxy, mut client) = setup().await;
    client
        .call(Request::create_ephemeral("/a"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    proxy.hold(Direction::Both);
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    assert!(!exists(server.address(), "/a").await);
    // The session no longer exists, which is no error.
    proxy.expire_session().await.unwrap();
    proxy.calm();
    client.closed().await.unwrap();
    assert!(client.reattach(proxy.address()).await.unwrap().is_refused());
}

#[tokio::test]
async fn calm_takes_back_faults_that_have_not_happened() {
    let (_server, proxy, mut client) = setup().await;
    let lost = proxy.drop_request(Op::Create);
    proxy.delay(Direction::Both, Duration::from_secs(60));
    proxy.calm();
    lost.happened().await.unwrap_err();
    let created = client.call(Request::create("/a", "")).await.unwrap();
    created.ok().unwrap();
}
