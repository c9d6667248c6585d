//! How fast work in the background goes, so that those who wait for an answer do not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many steps are done between two rests.
const STEPS: u32 = 1000;

/// Rests as long as it works: half of one processor, and half of the disk, are for others.
#[derive(Debug)]
pub(super) struct Pace {
    /// Set when somebody waits for the end: no more rests then.
    hurry: Arc<AtomicBool>,
    steps: u32,
    /// When the last rest ended.
    rested: Instant,
}

impl Pace {
    /// A pace that is given up when `hurry` is set. Unparking the thread ends a rest.
    pub(super) fn new(hurry: Arc<AtomicBool>) -> Self {
        Self {
            hurry,
            steps: 0,
            rested: Instant::now(),
        }
    }

    /// No rests: somebody waits from the beginning.
    pub(super) fn hurried() -> Self {
        Self::new(Arc::new(AtomicBool::new(true)))
    }

    /// Counts a step, and rests if it is time.
    pub(super) fn step(&mut self) {
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

    /// How long to rest, if at all.
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
