//! A client with too many requests in flight: nothing that goes on by itself ends, and every verb succeeds when the load is over.

use std::time::Duration;

use bellwether::state::Seen;
use bellwether::{Cache, Client, Config, Lock, Queue, connect, zk};
use bellwether_testkit::{Direction, FaultProxy};
use futures_util::StreamExt as _;
use futures_util::future::select;

use crate::support::place::{Place, soon};

on_both_engines! {
    copy_is_current_after_an_overload,
    watch_goes_on_after_an_overload,
    consumer_goes_on_after_an_overload,
    lock_is_acquired_after_an_overload,
}

const REQUESTS_MAX: usize = 50;

/// A client that may have few requests in flight, and is so slow that it has.
struct Busy {
    proxy: FaultProxy,
    client: Client,
}

impl Busy {
    async fn new(place: &Place) -> Self {
        let proxy = FaultProxy::start(&place.server()).await.unwrap();
        let limits = zk::Limits {
            requests_max: REQUESTS_MAX,
            ..zk::Limits::default()
        };
        let client = connect(format!("{}{}", proxy.address(), place.chroot()))
            .session_timeout(Duration::from_secs(60))
            .limits(limits)
            .await
            .unwrap();
        Self { proxy, client }
    }

    /// Changes something that the client watches while it has too many requests, and lets it see the change only then.
    async fn sees_while_overloaded(&self, path: &str, change: impl Future<Output = ()>) {
        let raw = self.client.raw();
        let (_, data) = raw.exists_watched(path).await.unwrap();
        let (_, children) = raw.children_watched(path).await.unwrap();
        self.proxy.hold(Direction::ToServer);
        let flood: Vec<_> = (0..REQUESTS_MAX).map(|_| raw.exists("/")).collect();
        assert!(raw.exists("/").await.unwrap_err().is_overload());
        change.await;
        soon(select(data, children)).await;
        // For longer than it takes until a request is refused.
        assert!(raw.exists("/").await.unwrap_err().is_overload());
        self.proxy.resume(Direction::ToServer);
        for reply in flood {
            soon(reply).await.unwrap();
        }
    }
}

async fn set(place: &Place, path: &str, data: &str) {
    place
        .outside()
        .set(path, data.as_bytes(), None)
        .await
        .unwrap();
}

async fn copy_is_current_after_an_overload(place: Place) {
    let busy = Busy::new(&place).await;
    let config = Config::<String>::new(&place.client().await, "/tree/node");
    config.set(&"old".to_owned()).await.unwrap();
    let copy = Cache::new(&busy.client, "/tree").open().await.unwrap();
    busy.sees_while_overloaded("/tree/node", set(&place, "/tree/node", "new"))
        .await;
    soon(async {
        while copy
            .get("/tree/node")
            .is_none_or(|node| node.data != b"new")
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn watch_goes_on_after_an_overload(place: Place) {
    let busy = Busy::new(&place).await;
    let config = Config::<String>::new(&busy.client, "/value");
    config.set(&"old".to_owned()).await.unwrap();
    let mut watch = config.watch();
    let next = soon(watch.next()).await.unwrap().unwrap();
    assert!(matches!(next, Seen::Value(value) if value.value == "old"));
    let waiting = tokio::spawn(async move { watch.next().await });
    busy.sees_while_overloaded("/value", set(&place, "/value", "new"))
        .await;
    let next = soon(waiting).await.unwrap().unwrap().unwrap();
    assert!(matches!(next, Seen::Value(value) if value.value == "new"));
}

async fn consumer_goes_on_after_an_overload(place: Place) {
    let busy = Busy::new(&place).await;
    let other = Queue::<String>::new(&place.client().await, "/queue");
    other.put(&"first".to_owned()).await.unwrap();
    let mut consumer = Queue::<String>::new(&busy.client, "/queue").consumer();
    let first = soon(consumer.next()).await.unwrap().unwrap();
    first.ack().await.unwrap();
    let waiting = tokio::spawn(async move {
        loop {
            match consumer.next().await {
                Some(Ok(claim)) => return Some(claim),
                Some(Err(error)) => assert!(error.is_transient(), "{error:?}"),
                None => return None,
            }
        }
    });
    place.until_children("/queue/line", 1).await;
    let put = async { drop(other.put(&"second".to_owned()).await.unwrap()) };
    busy.sees_while_overloaded("/queue/items", put).await;
    let claim = soon(waiting).await.unwrap().expect("the stream ended");
    assert_eq!(claim.payload(), "second");
    claim.ack().await.unwrap();
}

async fn lock_is_acquired_after_an_overload(place: Place) {
    let busy = Busy::new(&place).await;
    let raw = busy.client.raw();
    busy.proxy.hold(Direction::ToServer);
    let flood: Vec<_> = (0..REQUESTS_MAX).map(|_| raw.exists("/")).collect();
    let lock = Lock::new(&busy.client, "/lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    assert!(raw.exists("/").await.unwrap_err().is_overload());
    busy.proxy.resume(Direction::ToServer);
    for reply in flood {
        soon(reply).await.unwrap();
    }
    soon(waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}
