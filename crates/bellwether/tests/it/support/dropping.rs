//! Futures that are dropped at a chosen point.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use bellwether_testkit::{Direction, FaultProxy};
use tokio::sync::Notify;

use crate::support::place::soon;

/// Number of requests through a proxy since its counts were reset.
pub(crate) fn requests(proxy: &FaultProxy) -> usize {
    proxy.counts().values().sum()
}

/// Awaits a future until its session has sent `count` requests, and then drops it. Returns its result if it was ready before.
///
/// An acquisition runs on the thread of its session, so the number of polls by its caller says nothing about its progress.
pub(crate) async fn until_request<F: Future>(
    proxy: &FaultProxy,
    count: usize,
    future: F,
) -> Option<F::Output> {
    proxy.reset_counts();
    let sent = async {
        while requests(proxy) < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        // Looked at first: on a busy machine the replies may have arrived too by then.
        () = sent => None,
        output = future => Some(output),
    }
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls a future once, while the proxy of its session holds replies back, waits until it is woken, and drops it then: the result is ready,
/// and the caller never gets it.
pub(crate) async fn drop_when_woken<F: Future>(proxy: &FaultProxy, future: F) {
    let mut future = pin!(future);
    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(woken.clone());
    proxy.hold(Direction::ToClient);
    let first = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(first.is_pending(), "done before anything was answered");
    proxy.resume(Direction::ToClient);
    soon(woken.0.notified()).await;
}
