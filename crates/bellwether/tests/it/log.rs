//! Log lines of the library.

use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::Lock;
use bellwether_testkit::Op;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::place::{Place, soon};

/// A subscriber that blocks on each line about one node, as one does whose output nobody reads.
struct Blocked {
    node: String,
    entered: Arc<Notify>,
    released: Mutex<Receiver<()>>,
}

impl Subscriber for Blocked {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("bellwether")
    }

    fn event(&self, event: &Event<'_>) {
        let mut names = Names {
            node: &self.node,
            is_named: false,
        };
        event.record(&mut names);
        if names.is_named {
            self.entered.notify_one();
            // An error says that the test is over.
            let _ = self.released.lock().unwrap().recv();
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Whether a line names a node.
struct Names<'a> {
    node: &'a str,
    is_named: bool,
}

impl Visit for Names<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.is_named |= format!("{value:?}").contains(self.node);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_that_blocks_does_not_stop_the_heartbeat() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(Duration::from_millis(600)).await;
    let kept = Lock::new(&client, "/kept").acquire().await.unwrap();
    let ended = Lock::new(&client, "/ended").acquire().await.unwrap();
    let (release, released) = channel();
    let entered = Arc::new(Notify::new());
    let blocked = Blocked {
        node: ended.node().to_owned(),
        entered: entered.clone(),
        released: Mutex::new(released),
    };
    tracing::subscriber::set_global_default(blocked).unwrap();

    let node = format!("/ended/{}", ended.node());
    place.outside().delete(&node, None).await.unwrap();
    soon(entered.notified()).await;
    proxy.reset_counts();
    // Six a timeout.
    soon(async {
        while proxy.count(Op::Ping) < 12 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(kept.is_held());
    assert!(!ended.is_held());
    assert_eq!(place.children("/kept").await, [kept.node()]);
    drop(release);
    kept.release().await.unwrap();
}
