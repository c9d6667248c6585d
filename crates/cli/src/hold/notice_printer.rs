//! Prints notices from a separate thread, so that a blocked terminal or pipe delays no heartbeat and no signal.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// The longest queue of notices. While it is full, further notices are dropped.
const QUEUE_MAX: usize = 16;

/// How long to wait at the end for notices that are not printed yet.
const LIMIT: Duration = Duration::from_secs(1);

type Printing = Box<dyn FnOnce() + Send>;

/// The thread ends when this is dropped, unless it is blocked. It does not keep the process alive.
#[derive(Debug)]
pub(crate) struct NoticePrinter {
    queue: SyncSender<Printing>,
}

impl NoticePrinter {
    pub(crate) fn start() -> Self {
        let (queue, printings) = sync_channel::<Printing>(QUEUE_MAX);
        std::thread::spawn(move || printings.into_iter().for_each(|print| print()));
        Self { queue }
    }

    /// Prints something after all that was queued before. Never blocks.
    pub(crate) fn print(&self, print: impl FnOnce() + Send + 'static) {
        // A dropped notice is not logged either: stderr may be what is blocked.
        let _ = self.queue.try_send(Box::new(print));
    }

    /// Waits until everything is printed, up to a limit. Cancel safe.
    pub(crate) async fn flush(&self) {
        let (sender, receiver) = oneshot::channel::<()>();
        self.print(move || drop(sender));
        // After the limit, what is left is dropped.
        let _ = timeout(LIMIT, receiver).await;
    }

    /// As [`flush`](Self::flush), for callers that cannot await: blocks, for at most `limit`.
    pub(crate) fn flush_blocking(&self, limit: Duration) {
        let (sender, receiver) = sync_channel::<()>(0);
        self.print(move || drop(sender));
        let _ = receiver.recv_timeout(limit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn everything_is_printed_in_order() {
        let (sender, said) = channel();
        let notices = NoticePrinter::start();
        for n in 0..3 {
            let sender = sender.clone();
            notices.print(move || sender.send(n).unwrap());
        }
        notices.flush().await;
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        notices.print(move || sender.send(3).unwrap());
        notices.flush_blocking(Duration::from_secs(60));
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [3]);
    }

    #[tokio::test]
    async fn blocked_output_blocks_no_caller() {
        let (reader, unread) = channel::<()>();
        let notices = NoticePrinter::start();
        notices.print(move || assert!(unread.recv().is_err()));
        for _ in 0..=2 * QUEUE_MAX {
            notices.print(|| {});
        }
        notices.flush().await;
        notices.flush_blocking(Duration::from_millis(1));
        drop(reader);
    }
}
