//! Notices when this process did not run.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::event::Moment;

/// How often it looks.
const BEAT: Duration = Duration::from_millis(5);

/// What is late by less is ordinary scheduling.
const STALL_MIN: Duration = Duration::from_millis(25);

/// A thread that finds out afterwards that the process was stopped, or got no processor.
///
/// A holder that does not run cannot notice the end of its hold; a history that says so tells it from one that
/// does not care. Dropping it ends the thread.
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
            // It has nothing to say but that it ended.
            let _ = thread.join();
        }
    }
}
