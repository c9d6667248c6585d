//! The queue between a session and a persistent watch. It is bounded, so that a slow reader cannot exhaust the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::core::watches::PersistentEvent;

/// A queue for `events_max` events.
pub(crate) fn event_queue(events_max: usize) -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::<AtomicUsize>::default();
    let sender = EventSender {
        sender,
        waiting: Arc::clone(&waiting),
        events_max,
    };
    (sender, EventReceiver { receiver, waiting })
}

#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    sender: mpsc::UnboundedSender<PersistentEvent>,
    waiting: Arc<AtomicUsize>,
    events_max: usize,
}

impl EventSender {
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Adds an event. If `events_max` events wait, one [`PersistentEvent::Missed`] is queued in its place, and further events are dropped
    /// until the reader has taken something from the queue.
    pub(crate) fn send(&self, event: PersistentEvent) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let event = match waiting.cmp(&self.events_max) {
            std::cmp::Ordering::Less => event,
            std::cmp::Ordering::Equal => PersistentEvent::Missed,
            std::cmp::Ordering::Greater => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        };
        // The reader may be gone, which is no error.
        let _ = self.sender.send(event);
    }
}

#[derive(Debug)]
pub(crate) struct EventReceiver {
    receiver: mpsc::UnboundedReceiver<PersistentEvent>,
    waiting: Arc<AtomicUsize>,
}

impl EventReceiver {
    /// The next event; `None` at the end.
    pub(crate) async fn recv(&mut self) -> Option<PersistentEvent> {
        let event = self.receiver.recv().await?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }
}
