//! Groups that are decided and not yet published.

use std::sync::{Condvar, Mutex, MutexGuard};

/// Maximum bytes of requests that are decided and not yet published, besides one group. What is decided is published in that order, so it delays
/// a client that comes later, whatever its turn is.
const UNDER_WAY_BYTES: usize = 1 << 20;

/// Sums groups from the first thread of the pipeline to the second.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    state: Mutex<Sums>,
    published: Condvar,
}

#[derive(Debug, Default)]
struct Sums {
    groups: usize,
    bytes: usize,
    /// Whether the second thread has ended, so that nothing more is published.
    is_over: bool,
}

impl UnderWay {
    /// Whether all groups are published. Only the first thread adds some, so it can commit a group itself then.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().groups == 0
    }

    /// Sums a group, once there is room for it.
    pub(super) fn add(&self, bytes: usize) {
        let state = self.lock();
        let state = self.published.wait_while(state, |state| !state.fits(bytes));
        let mut state = state.expect("never panics inside");
        state.groups += 1;
        state.bytes += bytes;
    }

    /// Sums groups that are published.
    pub(super) fn remove(&self, groups: usize, bytes: usize) {
        let mut state = self.lock();
        state.groups -= groups;
        state.bytes -= bytes;
        drop(state);
        self.published.notify_one();
    }

    /// Nothing more is published: the first thread waits no longer.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.published.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.state.lock().expect("never panics inside")
    }
}

impl Sums {
    fn fits(&self, bytes: usize) -> bool {
        self.groups == 0 || self.bytes + bytes <= UNDER_WAY_BYTES || self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_writes_run_ahead_of_the_log_and_long_ones_one_at_a_time() {
        let under_way = UnderWay::default();
        let fits = |bytes| under_way.lock().fits(bytes);
        assert!(fits(10 * UNDER_WAY_BYTES), "nothing is under way");
        for _ in 0..100 {
            under_way.add(10_000);
        }
        assert!(!fits(UNDER_WAY_BYTES - 100 * 10_000 + 1));
        under_way.remove(100, 100 * 10_000);
        assert!(under_way.is_empty());
        under_way.add(10 * UNDER_WAY_BYTES);
        assert!(!fits(0));
        under_way.end();
        under_way.add(1);
    }
}
