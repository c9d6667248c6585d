//! Log lines that cannot block a session.
//!
//! A user's `tracing` subscriber may block, for example on a stopped terminal or a full pipe. On the thread that
//! sessions share it would stop every heartbeat. So lines from there go to a queue, and a separate thread emits them. Lines
//! from other threads are emitted directly, in the caller's spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing::warn;

use crate::process::is_session_thread;

/// The number of lines that may wait for the subscriber. Further lines are dropped and counted.
const LINES_MAX: usize = 1_024;

thread_local! {
    /// Of the session thread.
    static LINES: Lines = Lines::start(LINES_MAX);
}

/// Emits a log line, by a call of one of `tracing`'s macros. Returns at once on the session thread.
pub fn emit(line: impl FnOnce() + Send + 'static) {
    match is_session_thread() {
        true => LINES.with(|lines| lines.push(Box::new(line))),
        false => line(),
    }
}

type Line = Box<dyn FnOnce() + Send>;

/// A bounded queue of lines, and the number of dropped ones.
struct Lines {
    queue: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl Lines {
    fn start(lines_max: usize) -> Self {
        let (queue, lines) = sync_channel(lines_max);
        let dropped = Arc::<AtomicU64>::default();
        let counted = dropped.clone();
        std::thread::Builder::new()
            .name("bellwether-log".to_owned())
            .spawn(move || emit_all(&lines, &counted))
            .expect("a process that may start no thread can do nothing here");
        Self { queue, dropped }
    }

    fn push(&self, line: Line) {
        if self.queue.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn emit_all(lines: &Receiver<Line>, dropped: &AtomicU64) {
    for line in lines {
        line();
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(
                dropped,
                "log lines were dropped: the subscriber is too slow"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_counted() {
        let lines = Lines::start(2);
        let (entered, is_entered) = channel();
        let (release, released) = channel::<()>();
        lines.push(Box::new(move || {
            entered.send(()).unwrap();
            // An error is the release.
            let _ = released.recv();
        }));
        is_entered.recv().unwrap();
        let (emitted, all) = channel();
        for number in 0..5 {
            let emitted = emitted.clone();
            lines.push(Box::new(move || emitted.send(number).unwrap()));
        }
        drop(emitted);
        assert_eq!(lines.dropped.load(Ordering::Relaxed), 3);
        drop(release);
        assert_eq!(all.iter().collect::<Vec<_>>(), [0, 1]);
    }
}
