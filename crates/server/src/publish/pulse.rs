//! Whether the write pipeline answers.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::writer::{Submission, Submit};

/// A question takes the way of a write, from the queue to the publication, without a transaction. At most one is under way, however many
/// callers wait for its answer.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    is_under_way: AtomicBool,
    beats: watch::Sender<u64>,
}

impl Pulse {
    /// Waits until the pipeline answers. False if it takes nothing any more.
    ///
    /// # Cancel safety
    ///
    /// The question stays under way, for the next caller.
    pub(crate) async fn felt(&self, submit: &Submit) -> bool {
        // Before the look at the question: a beat between both is an answer too.
        let mut beats = self.beats.subscribe();
        if !self.is_under_way.swap(true, Ordering::AcqRel) && !submit.submit(Submission::Pulse) {
            return false;
        }
        beats.changed().await.is_ok()
    }

    /// The question has arrived.
    pub(super) fn beat(&self) {
        self.is_under_way.store(false, Ordering::Release);
        self.beats.send_modify(|count| *count += 1);
    }
}
