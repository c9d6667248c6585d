//! Clients that send requests without end: others get their turn.

use bellwether_server::Server;
use bellwether_testkit::{RawClient, Request, TestServer};

/// Requests so far, of all connections.
fn received(server: &Server) -> usize {
    let text = server.monitor().word("mntr");
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("zk_packets_received"));
    count.unwrap().trim().parse().unwrap()
}

/// Clients and server share one thread, so all pings wait for the server before it reads the first, and they are fewer than backpressure
/// would stop.
#[tokio::test]
async fn a_connection_that_always_has_requests_lets_others_run() {
    const FLOOD: usize = 10_000;
    let server = Server::start(TestServer::config()).await.unwrap();
    let mut flooding = RawClient::connect(server.addresses()[0]).await.unwrap();
    let mut good = RawClient::connect(server.addresses()[0]).await.unwrap();
    let flood = Request::Ping.encode(-2).repeat(FLOOD);
    flooding.send_bytes(&flood).await.unwrap();
    good.send(&Request::Ping).await.unwrap();
    let before = received(&server);
    assert!(before < FLOOD / 10, "{before} requests are handled already");
    good.receive_reply().await.unwrap().outcome.unwrap();
    let between = received(&server) - before;
    assert!(between < FLOOD / 10, "{between} requests came first");
}
