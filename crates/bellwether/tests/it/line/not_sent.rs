//! Requests that did not leave the process: they are sent again, without a search for the first attempt.

use std::time::Duration;

use bellwether::zk::{Dial, Dialing, Endpoint, Sockets, Stream};
use bellwether::{Client, Lock, connect};
use bellwether_testkit::{FaultProxy, Op};
use tokio::io::{AsyncReadExt as _, copy_bidirectional, duplex};
use tokio::sync::watch;

use crate::support::place::{Place, soon};

on_both_engines! {
    contender_that_was_not_sent_is_not_searched_for,
    fenced_write_that_was_not_sent_is_sent_again,
}

/// A dialer whose connections can break in the middle of a request.
#[derive(Clone, Debug, Default)]
struct Brittle(watch::Sender<bool>);

impl Brittle {
    /// Breaks the connection at the next request, before it is written completely. Later connections work.
    fn break_at_next_request(&self) {
        self.0.send_replace(true);
    }

    async fn broken(&self) {
        let mut breaks = self.0.subscribe();
        soon(breaks.wait_for(|breaks| !breaks)).await.unwrap();
    }
}

impl Dial for Brittle {
    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        let (dialing, breaks) = (Sockets.dial(endpoint), self.0.clone());
        Box::pin(async move {
            let mut upstream = dialing.await?;
            let (near, mut far) = duplex(1);
            tokio::spawn(async move {
                let mut wait = breaks.subscribe();
                let is_to_break = async { wait.wait_for(|breaks| *breaks).await.map(drop) };
                tokio::select! {
                    _ = copy_bidirectional(&mut far, &mut upstream) => {}
                    _ = is_to_break => {
                        // The first byte of a request.
                        let _ = far.read_u8().await;
                        breaks.send_replace(false);
                    }
                }
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// A session over connections that can break, with a timeout so long that no heartbeat is due.
async fn brittle(place: &Place) -> (Brittle, FaultProxy, Client) {
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let way = Brittle::default();
    let client = connect(format!("{}{}", proxy.address(), place.chroot()))
        .session_timeout(Duration::from_secs(60))
        .dial(way.clone());
    (way, proxy, client.await.unwrap())
}

async fn contender_that_was_not_sent_is_not_searched_for(place: Place) {
    let (way, proxy, client) = brittle(&place).await;
    let lock = Lock::new(&client, "/lock");
    lock.acquire().await.unwrap().release().await.unwrap();
    proxy.reset_counts();
    way.break_at_next_request();
    let guard = soon(lock.acquire()).await.unwrap();
    way.broken().await;
    assert_eq!(proxy.count(Op::Create2), 1);
    assert_eq!(proxy.count(Op::Sync), 0, "it was searched for");
    assert_eq!(place.children("/lock").await, [guard.node()]);
    guard.release().await.unwrap();
}

async fn fenced_write_that_was_not_sent_is_sent_again(place: Place) {
    let (way, proxy, client) = brittle(&place).await;
    let guard = Lock::new(&client, "/lock").acquire().await.unwrap();
    proxy.reset_counts();
    way.break_at_next_request();
    let write = guard.write().create("/written", "once");
    soon(write.commit()).await.unwrap();
    way.broken().await;
    assert_eq!(proxy.count(Op::Multi), 1);
    let (data, _) = place.outside().get("/written").await.unwrap();
    assert_eq!(data, "once".as_bytes());
    guard.release().await.unwrap();
}
