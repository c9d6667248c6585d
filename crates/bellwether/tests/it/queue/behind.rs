//! A queue behind a fault proxy.

use std::time::Duration;

use bellwether::{Client, Queue, connect, zk};
use bellwether_testkit::FaultProxy;

use crate::support::place::{Place, soon};

/// A session through a proxy, and a queue whose directories exist.
pub(super) struct Behind {
    pub(super) proxy: FaultProxy,
    pub(super) client: Client,
    /// The first session.
    pub(super) session: zk::Client,
    pub(super) queue: Queue<String>,
}

impl Behind {
    pub(super) async fn a_proxy(place: &Place) -> Self {
        let proxy = FaultProxy::start(place.server()).await.unwrap();
        let address = format!("{}{}", proxy.connect_string(), place.chroot());
        let options = connect(address).session_timeout(Duration::from_secs(2));
        let client = options.await.unwrap();
        let queue = Queue::<String>::new(&client, "/queue");
        queue.put(&text("warm-up")).await.unwrap();
        soon(queue.take()).await.unwrap().ack().await.unwrap();
        Self {
            proxy,
            session: client.raw(),
            client,
            queue,
        }
    }
}

pub(super) async fn strings(place: &Place) -> Queue<String> {
    Queue::new(&place.client().await, "/queue")
}

pub(super) fn text(text: &str) -> String {
    text.to_owned()
}
