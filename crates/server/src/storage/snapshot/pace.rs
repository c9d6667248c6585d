//! Throttles background work, so that it does not delay requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Steps between two pauses.
const STEPS: u32 = 1000;

/// Pauses as long as it works, which leaves at least half of one core and of the disk to requests.
#[derive(Debug)]
pub(in crate::storage) struct Pace {
    /// Set when a caller waits for the end: no more pauses then.
    hurry: Arc<AtomicBool>,
    steps: u32,
    /// When the last pause ended.
    rested: Instant,
}

impl Pace {
    /// A pace that ends when `hurry` is set. Unparking the thread ends a pause.
    pub(in crate::storage) fn new(hurry: Arc<AtomicBool>) -> Self {
        Self {
            hurry,
            steps: 0,
            rested: Instant::now(),
        }
    }

    /// No pauses: a caller waits from the start.
    pub(in crate::storage) fn hurried() -> Self {
        Self::new(Arc::new(AtomicBool::new(true)))
    }

    /// Counts a step, and pauses if it is time.
    pub(in crate::storage) fn step(&mut self) {
        self.steps += 1;
        if self.steps < STEPS {
            return;
        }
        self.steps = 0;
        if let Some(rest) = self.rest_at(Instant::now()) {
            thread::park_timeout(rest);
            self.rested = Instant::now();
        }
    }

    /// Length of the pause that is due, if any.
    fn rest_at(&self, now: Instant) -> Option<Duration> {
        let hurry = self.hurry.load(Ordering::Relaxed);
        (!hurry).then(|| now.saturating_duration_since(self.rested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_as_long_as_the_work_before_it_unless_somebody_waits() {
        let hurry = Arc::new(AtomicBool::new(false));
        let pace = Pace::new(hurry.clone());
        let worked = Duration::from_millis(20);
        assert_eq!(pace.rest_at(pace.rested + worked), Some(worked));
        hurry.store(true, Ordering::Relaxed);
        assert_eq!(pace.rest_at(pace.rested + worked), None);
    }
}
