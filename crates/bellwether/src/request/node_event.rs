//! Watches on one node.

use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_client as zk;
use futures_util::FutureExt as _;

/// What a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// The session has ended, and its watches report nothing more.
    SessionEnded,
}

impl From<Result<zk::Event, zk::Error>> for Happened {
    fn from(event: Result<zk::Event, zk::Error>) -> Self {
        match event {
            Ok(event) => match event.kind {
                zk::EventKind::NodeCreated => Self::Created,
                zk::EventKind::NodeDeleted => Self::Deleted,
                zk::EventKind::NodeDataChanged => Self::DataChanged,
                zk::EventKind::NodeChildrenChanged => Self::ChildrenChanged,
            },
            Err(_) => Self::SessionEnded,
        }
    }
}

/// Resolves with the first change of a node, or the end of the session. Dropped, the watch is removed from the server.
#[derive(Debug)]
pub(crate) struct NodeEvent(zk::Watch);

impl NodeEvent {
    pub(crate) fn of(watch: zk::Watch) -> Self {
        Self(watch)
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
    type Output = Happened;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Happened> {
        Pin::new(&mut self.0).poll(cx).map(Happened::from)
    }
}
