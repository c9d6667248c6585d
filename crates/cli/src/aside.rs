//! What is said because others did something, while something is held. A thread of its own says it: others decide when, and the
//! reader may not read; the beats, the end of the input and the signals must not wait for that.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// How much may be left to say. What comes on top while nobody reads is not said.
const UNSAID_MAX: usize = 16;

/// How long the end waits for what is left to say.
const LIMIT: Duration = Duration::from_secs(1);

type Saying = Box<dyn FnOnce() + Send>;

/// The thread ends with it, unless it still waits for a reader; it keeps no process from its end.
#[derive(Debug)]
pub(crate) struct Aside {
    sayings: SyncSender<Saying>,
}

impl Aside {
    pub(crate) fn start() -> Self {
        let (sayings, unsaid) = sync_channel::<Saying>(UNSAID_MAX);
        std::thread::spawn(move || unsaid.into_iter().for_each(|say| say()));
        Self { sayings }
    }

    /// Has something said, after all before. Never waits.
    pub(crate) fn say(&self, say: impl FnOnce() + Send + 'static) {
        // Not even in the log that it was not said: that may be what nobody reads.
        let _ = self.sayings.try_send(Box::new(say));
    }

    /// Waits until all is said, but not for ever. Cancel safe.
    pub(crate) async fn said(&self) {
        let (sender, receiver) = oneshot::channel::<()>();
        self.say(move || drop(sender));
        // No more can be done for a reader that does not read.
        let _ = timeout(LIMIT, receiver).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn all_is_said_in_order() {
        let (sender, said) = channel();
        let aside = Aside::start();
        for n in 0..3 {
            let sender = sender.clone();
            aside.say(move || sender.send(n).unwrap());
        }
        aside.said().await;
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[tokio::test]
    async fn what_nobody_reads_holds_up_nobody() {
        let (reader, unread) = channel::<()>();
        let aside = Aside::start();
        aside.say(move || assert!(unread.recv().is_err()));
        for _ in 0..=2 * UNSAID_MAX {
            aside.say(|| {});
        }
        aside.said().await;
        drop(reader);
    }
}
