//! Armed watches on one node.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use zookeeper_client as zk;

use crate::node_data::Revocation;

/// Resolves with the first change of a node, or the end of the session. Dropped, the watch is removed from the server.
pub(crate) struct NodeEvent(Pin<Box<dyn Future<Output = zk::WatchedEvent> + Send + Sync>>);

impl NodeEvent {
    pub(crate) fn of(watch: zk::OneshotWatcher) -> Self {
        Self(Box::pin(watch.changed()))
    }

    /// The watch itself, unless the event has come already.
    pub(crate) fn unless_told(mut self) -> Option<Self> {
        match (&mut self).now_or_never() {
            Some(_) => None,
            None => Some(self),
        }
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

/// An armed watch on the own node, and what was asked of its owner when it was armed.
#[derive(Debug)]
pub(crate) struct OwnWatch {
    pub(crate) event: NodeEvent,
    pub(crate) asked: Option<Revocation>,
}

impl OwnWatch {
    pub(crate) fn of(data: &[u8], watch: zk::OneshotWatcher) -> Self {
        Self {
            event: NodeEvent::of(watch),
            asked: Revocation::from_data(data),
        }
    }
}
