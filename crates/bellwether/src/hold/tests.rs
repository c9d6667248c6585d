//! What a clock that passes a deadline does to holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_testkit::{FaultProxy, Op, TestServer};
use tokio::sync::watch;

use super::{HoldState, HoldWatch};
use crate::client::Client;
use crate::connect::connect;
use crate::heart::Engine;
use crate::queue::PriorityQueue;

/// A session on one server that takes it for an ensemble: what counts as proof is over long before the session is.
async fn client(address: String) -> Client {
    let timeout = Duration::from_secs(4);
    let zk = zk::Client::connect(&*address)
        .session_timeout(timeout)
        .await
        .unwrap();
    Client::start(zk, Engine::Ensemble, None, connect(address))
}

async fn until_unproven(client: &Client) {
    let passed = async {
        while client.heart().is_alive() {
            client.home().sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = client.session_timeout();
    tokio::time::timeout(limit, passed).await.unwrap();
}

#[tokio::test]
async fn loss_that_a_watch_has_told_is_final() {
    let server = TestServer::start().await.unwrap();
    let client = client(server.connect_string()).await;
    let (state, _) = watch::channel(HoldState::Held);
    let watch = HoldWatch::new(&state, &client);
    assert!(watch.is_held());
    // No hold is there to keep the heart beating.
    until_unproven(&client).await;
    assert!(!watch.is_held());
    client.heart().prove().await.unwrap();
    assert!(!watch.is_held(), "lost, and held again");
    assert_eq!(*state.borrow(), HoldState::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_not_returned_when_it_is_lost_already() {
    let server = TestServer::start().await.unwrap();
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let client = client(proxy.connect_string()).await;
    let queue = PriorityQueue::new(&client, "/queue");
    // Put by another, for what a put leaves behind keeps the heart beating.
    let other = connect(server.connect_string()).await.unwrap();
    let others = PriorityQueue::new(&other, "/queue");
    others.put(1, &Vec::new()).await.unwrap();
    // Once taken and given back, so that all directories are there.
    let claim = others.try_take().await.unwrap().expect("there is one");
    claim.give_back("").await.unwrap();
    // The claim is answered; what is read ahead behind it is lost, and comes when the claim proves nothing any more.
    let is_claimed = AtomicBool::new(false);
    let lost = proxy.swallow_reply_where(move |request| {
        is_claimed.fetch_or(request.op == Op::Multi, Ordering::Relaxed)
            && request.op == Op::MultiRead
    });
    proxy.refuse(true);
    let taken = tokio::spawn(async move { queue.try_take().await });
    lost.happened().await.unwrap();
    until_unproven(&client).await;
    proxy.refuse(false);
    let claim = taken.await.unwrap().unwrap().expect("there is one");
    assert!(claim.is_held());
    claim.ack().await.unwrap();
}
