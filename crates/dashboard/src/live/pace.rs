//! Limits the requests of the dashboard, so that observing adds little load.

use std::time::{Duration, Instant};

/// Share of the servers' requests that reading changes may take.
const SHARE: f64 = 0.03;

/// Additional share, of that share, for reading everything.
const WHOLE_SHARE: f64 = 0.5;

/// Requests per second that are always allowed: a load that a small server does not notice.
const RATE_MIN: f64 = 100.0;

/// Burst of requests allowed after a quiet time.
const BURST: f64 = 400.0;

/// A request budget that fills up over time (token bucket).
#[derive(Debug)]
pub(crate) struct Pace {
    /// Negative while more was spent than available.
    budget: f64,
    rate: f64,
    at: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            budget: BURST,
            rate: RATE_MIN,
            at: now,
        }
    }

    /// Records how many requests per second all clients of the servers send.
    pub(crate) fn observe(&mut self, requests_per_second: f64, now: Instant) {
        self.fill(now);
        self.rate = (requests_per_second * SHARE).max(RATE_MIN);
    }

    /// Records requests sent.
    pub(crate) fn spend(&mut self, requests: usize, now: Instant) {
        self.fill(now);
        self.budget -= requests_as_float(requests);
    }

    /// When the next requests may be sent.
    pub(crate) fn next(&mut self, now: Instant) -> Instant {
        self.fill(now);
        let debt = (-self.budget).max(0.0);
        now + Duration::from_secs_f64(debt / self.rate)
    }

    /// Time to wait after reading everything, which took `requests` requests, before reading everything again. This has a budget of its
    /// own, so that changes are shown at once after the first reading.
    pub(crate) fn until_next_whole(&self, requests: usize) -> Duration {
        Duration::from_secs_f64(requests_as_float(requests) / (self.rate * WHOLE_SHARE))
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.budget = (self.budget + passed * self.rate).min(BURST);
        self.at = now;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a budget need not be exact")]
fn requests_as_float(requests: usize) -> f64 {
    requests as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_looks_are_free_and_large_ones_are_paid_for_with_time() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.spend(300, now);
        assert_eq!(pace.next(now), now);
        pace.spend(1100, now);
        assert_eq!(pace.next(now), now + Duration::from_secs(10));
        let later = now + Duration::from_secs(5);
        pace.observe(50_000.0, later);
        assert_eq!(pace.next(later), later + Duration::from_secs(5) / 15);
        assert_eq!(pace.until_next_whole(1500), Duration::from_secs(2));
    }
}
