//! Detects when this process did not run.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::event::Moment;

/// Interval between two checks.
const BEAT: Duration = Duration::from_millis(5);

/// A shorter delay is ordinary scheduling.
const STALL_MIN: Duration = Duration::from_millis(25);

/// A thread that detects afterwards that the process was stopped, or got no CPU time.
///
/// A paused holder cannot notice the end of its hold. The history records the pause, so that a check can tell it from a
/// holder that ignores the end. Dropping it ends the thread.
#[derive(Debug)]
pub struct Pulse {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// Calls `stalled` after each stall with the moment of its beginning.
    pub fn start(stalled: impl Fn(Moment) + Send + 'static) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut before = Moment::now();
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let now = Moment::now();
                if now.since(before) > BEAT + STALL_MIN {
                    stalled(before);
                }
                before = now;
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread returns no value.
            let _ = thread.join();
        }
    }
}
