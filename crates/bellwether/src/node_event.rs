//! An armed watch on one node.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use zookeeper_client as zk;

/// Resolves with the first change of a node, or the end of the session. Dropped, the watch is removed from the server.
pub(crate) struct NodeEvent(Pin<Box<dyn Future<Output = zk::WatchedEvent> + Send + Sync>>);

impl NodeEvent {
    pub(crate) fn of(watch: zk::OneshotWatcher) -> Self {
        Self(Box::pin(watch.changed()))
    }
}

impl Future for NodeEvent {
    type Output = zk::EventType;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<zk::EventType> {
        self.0.as_mut().poll(cx).map(|event| event.event_type)
    }
}

impl fmt::Debug for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEvent").finish_non_exhaustive()
    }
}
