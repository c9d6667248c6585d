//! Handles of armed watches.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

pub use crate::core::watches::{Event, PersistentEvent};

use crate::clock::Moment;
use crate::core::events::EventReceiver;
use crate::core::watches::Kind;
use crate::error::Error;
use crate::handle::own_session::OwnSession;

/// A one-shot watch: a future of the first change of a node, or of its children.
///
/// It survives reconnects. Dropping it removes the watch from the server, unless another handle of the session shares it.
///
/// It fails with [`Error::SessionEnded`], or with [`Error::NO_WATCHER`] after
/// [`Client::remove_watches`](crate::Client::remove_watches).
///
/// # Cancel safety
///
/// Dropping a borrow of it loses no event.
pub struct Watch {
    event: oneshot::Receiver<Event>,
    armed: Armed,
}

/// A persistent watch, until it is dropped.
///
/// Servers keep no events while the connection is lost; [`PersistentEvent::Missed`] reports that. It also replaces events
/// that arrived while [`Limits::events_max`](crate::Limits::events_max) of them were unread.
pub struct PersistentWatch {
    events: EventReceiver,
    armed: Armed,
}

/// Which events a persistent watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Changes of one node, and of the list of its children.
    Persistent,
    /// Changes of a node and of every node below it. A new or deleted child is reported as an event of the child itself.
    Recursive,
}

/// An armed watch. Dropping it removes the watch from the session.
pub(crate) struct Armed {
    pub(crate) shared: Arc<OwnSession>,
    pub(crate) kind: Kind,
    /// Including the chroot.
    pub(crate) path: String,
    pub(crate) chroot_bytes: usize,
    pub(crate) id: u64,
    pub(crate) events: Option<Events>,
}

/// The receiving end of a watch.
pub(crate) enum Events {
    OneShot(oneshot::Receiver<Event>),
    Stream(EventReceiver),
}

impl Armed {
    fn local(&self, mut event: Event) -> Event {
        event.path = strip(event.path, self.chroot_bytes);
        event
    }

    /// Whether no event arrives because this is a forked child.
    fn is_forked(&self) -> bool {
        self.shared.process().is_forked()
    }

    fn end(&self) -> Error {
        let end = self.shared.look(|session| session.end());
        // While the session lives, only `remove_watches` ends a watch without an event.
        end.map_or(Error::NO_WATCHER, Error::SessionEnded)
    }

    pub(crate) fn into_watch(mut self) -> Option<Watch> {
        match self.events.take() {
            Some(Events::OneShot(event)) => Some(Watch { event, armed: self }),
            _ => None,
        }
    }

    pub(crate) fn into_stream(mut self) -> Option<PersistentWatch> {
        match self.events.take() {
            Some(Events::Stream(events)) => Some(PersistentWatch {
                events,
                armed: self,
            }),
            _ => None,
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // The channel closes first: a request in flight then finds no receiver.
        self.events = None;
        self.shared
            .with(|session| session.drop_watch(Moment::now(), self.kind, &self.path, self.id));
    }
}

/// The path below the chroot.
pub(crate) fn strip(path: String, chroot_bytes: usize) -> String {
    match (chroot_bytes, path.get(chroot_bytes..)) {
        (0, _) | (_, None) => path,
        (_, Some("")) => "/".to_owned(),
        (_, Some(local)) => local.to_owned(),
    }
}

impl Future for Watch {
    type Output = Result<Event, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.event).poll(cx) {
            Poll::Pending if self.armed.is_forked() => Poll::Ready(Err(self.armed.end())),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(event)) => Poll::Ready(Ok(self.armed.local(event))),
            Poll::Ready(Err(_)) => Poll::Ready(Err(self.armed.end())),
        }
    }
}

impl PersistentWatch {
    /// The next event.
    ///
    /// # Cancel safety
    ///
    /// No event is lost.
    ///
    /// # Errors
    ///
    /// There are no more events: [`Error::SessionEnded`], or [`Error::NO_WATCHER`] after
    /// [`Client::remove_watches`](crate::Client::remove_watches).
    pub async fn next(&mut self) -> Result<PersistentEvent, Error> {
        if self.armed.is_forked() {
            return Err(self.armed.end());
        }
        match self.events.recv().await {
            Some(PersistentEvent::Node(event)) => {
                Ok(PersistentEvent::Node(self.armed.local(event)))
            }
            Some(PersistentEvent::Missed) => Ok(PersistentEvent::Missed),
            None => Err(self.armed.end()),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("path", &self.armed.path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PersistentWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentWatch")
            .field("path", &self.armed.path)
            .finish_non_exhaustive()
    }
}
