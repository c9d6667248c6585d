//! Removes the nodes of holds and waits that ended.
//!
//! A delete that is sent once and forgotten may be lost in a reconnect while the session lives on, and every contender behind that node
//! would wait for ever. So one task per session deletes until the server says that the node is gone.
//!
//! The first request is sent on the thread that gives a node up, so that it is sent even if the process exits right after.

use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::session::home::Home;

/// The pause before the next try when the server or the client has too many requests.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(100);

/// The way to the janitor of a session. The task ends when this is dropped and the work is done.
#[derive(Debug)]
pub(crate) struct Janitor {
    home: Home,
    zk: zk::Client,
    removals: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    /// How often something was given to it.
    given: AtomicU64,
    /// How much of that is done, in the order of the queue.
    done: watch::Receiver<u64>,
}

/// Something to remove. There is never more than this session has made, so the queue needs no limit of its own.
pub(crate) trait Removal: fmt::Debug + Send + Sync {
    /// One try, which may be repeated: it checks what is still there.
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>>;
}

impl Janitor {
    /// Starts the task. It keeps the session open until it has done its work.
    pub(crate) fn start(home: &Home, zk: zk::Client) -> Self {
        let (sender, mut receiver) = mpsc::unbounded_channel::<BoxFuture<'static, ()>>();
        let (tell, done) = watch::channel(0);
        home.spawn(async move {
            while let Some(removal) = receiver.recv().await {
                removal.await;
                tell.send_modify(|done| *done += 1);
            }
        });
        Self {
            home: home.clone(),
            zk,
            removals: sender,
            given: AtomicU64::new(0),
            done,
        }
    }

    pub(crate) fn remove(&self, removal: impl Removal + 'static) {
        // Counted before it is queued, so that a later `swept` waits for it.
        self.given.fetch_add(1, Ordering::SeqCst);
        let mut removal = perform(Box::new(removal), self.home.clone(), self.zk.clone()).boxed();
        let begun = removal.poll_unpin(&mut Context::from_waker(Waker::noop()));
        if begun.is_ready() {
            removal = ready(()).boxed();
        }
        // The task is gone only with its runtime, and then the session is too.
        let _ = self.removals.send(removal);
    }

    /// Waits until everything given to it before this call is deleted. Callers that count nodes do this first, because nodes that this session
    /// has given up must not count.
    pub(crate) async fn swept(&self) {
        let given = self.given.load(Ordering::SeqCst);
        // Gone with its runtime: there is no session left that a node could belong to.
        let _ = self.done.clone().wait_for(|&done| done >= given).await;
    }
}

/// Tries until it is gone. While there is no connection, the next request waits in the client: this does not spin.
async fn perform(removal: Box<dyn Removal>, home: Home, zk: zk::Client) {
    loop {
        match removal.remove(&zk).await {
            Err(error) if error.is_transient() => {}
            Err(error) if error.is_overload() => home.sleep(OVERLOAD_PAUSE).await,
            Ok(()) | Err(zk::Error::SessionEnded(_)) => return,
            Err(error) => {
                return log::emit(move || {
                    warn!(?removal, %error, "node stays until the session ends");
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use bellwether_testkit::TestServer;

    use super::*;

    /// A node that can be removed when nobody else sends requests.
    #[derive(Debug)]
    struct Overloaded {
        tries_left: Arc<AtomicU32>,
        error: zk::Error,
    }

    impl Removal for Overloaded {
        fn remove<'a>(&'a self, _: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
            let left = self.tries_left.fetch_sub(1, Ordering::SeqCst) - 1;
            ready(if left == 0 { Ok(()) } else { Err(self.error) }).boxed()
        }
    }

    #[tokio::test]
    async fn node_is_removed_when_an_overload_is_over() {
        let server = TestServer::start().await.unwrap();
        let zk = zk::Client::connect(server.connect_string()).await.unwrap();
        let janitor = Janitor::start(&Home::of(&zk), zk);
        for error in [
            zk::Error::Refused(zk::ErrorCode::ThrottledOp),
            zk::Error::Invalid(zk::Invalid::TooManyRequests),
        ] {
            let tries_left = Arc::new(AtomicU32::new(3));
            janitor.remove(Overloaded {
                tries_left: tries_left.clone(),
                error,
            });
            janitor.swept().await;
            assert_eq!(tries_left.load(Ordering::SeqCst), 0, "{error}");
        }
    }
}
