//! Limits the requests of the dashboard, so that observing adds little load.

use std::time::{Duration, Instant};

/// Share of the servers' requests that reading changes may take.
const SHARE: f64 = 0.025;

/// Additional share, of that share, for reading everything.
const WHOLE_SHARE: f64 = 0.5;

/// Requests per second that are always allowed: a load that no server notices.
const RATE_MIN: f64 = 10.0;

/// Requests per second that are allowed for reading everything where nothing else shows changes.
const UNWATCHED_RATE_MIN: f64 = 50.0;

/// Burst of requests allowed after a quiet time.
const BURST: f64 = 100.0;

/// A request budget that fills up over time (token bucket).
#[derive(Debug)]
pub(crate) struct Pace {
    /// Negative while more was spent than available.
    budget: f64,
    rate: f64,
    at: Instant,
    /// Requests that the client had sent when it was last asked.
    sent: u64,
    /// Whether a look is under way: requests are its own.
    is_looking: bool,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            budget: BURST,
            rate: RATE_MIN,
            at: now,
            sent: 0,
            is_looking: false,
        }
    }

    /// Records how many requests per second all clients of the servers send.
    pub(crate) fn observe(&mut self, requests_per_second: f64, now: Instant) {
        self.fill(now);
        self.rate = (requests_per_second * SHARE).max(RATE_MIN);
    }

    /// Begins a look: the requests from now on are its own.
    pub(crate) fn begin_look(&mut self, sent: u64, now: Instant) {
        self.charge_users(sent, now);
        self.is_looking = true;
    }

    /// Ends a look, and takes its requests from the budget; `sent` are all that the client has sent.
    pub(crate) fn charge_look(&mut self, sent: u64, now: Instant) {
        self.fill(now);
        self.budget -= as_float(self.end_look(sent));
    }

    /// Ends a look whose requests have a budget of their own. Returns their number.
    pub(crate) fn end_look(&mut self, sent: u64) -> u64 {
        self.is_looking = false;
        self.newly(sent)
    }

    /// Takes requests of users from the budget. They may be many, as in a search, and do not stop the looks for longer than a burst is
    /// worth.
    pub(crate) fn charge_users(&mut self, sent: u64, now: Instant) {
        self.fill(now);
        if !self.is_looking {
            let left = (self.budget - as_float(self.newly(sent))).max(-BURST);
            self.budget = left.min(self.budget);
        }
    }

    /// Number of requests that may be sent now.
    pub(crate) fn available(&self) -> f64 {
        self.budget
    }

    /// When the next requests may be sent.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let debt = (-self.budget).max(0.0);
        now + Duration::from_secs_f64(debt / self.rate)
    }

    /// Time to wait after reading everything, which took `requests` requests, before reading everything again. This has a budget of its
    /// own, so that changes are shown at once after the first reading. Without a watch it is the only way to see changes.
    pub(crate) fn until_next_whole(&self, requests: u64, is_watched: bool) -> Duration {
        let rate = match is_watched {
            true => self.rate * WHOLE_SHARE,
            false => (self.rate * WHOLE_SHARE).max(UNWATCHED_RATE_MIN),
        };
        Duration::from_secs_f64(as_float(requests) / rate)
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.budget = (self.budget + passed * self.rate).min(BURST);
        self.at = now;
    }

    fn newly(&mut self, sent: u64) -> u64 {
        // A new session counts from zero.
        let before = if sent < self.sent { 0 } else { self.sent };
        self.sent = sent;
        sent - before
    }
}

#[expect(clippy::cast_precision_loss, reason = "a budget need not be exact")]
fn as_float(requests: u64) -> f64 {
    requests as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_looks_are_free_and_large_ones_are_paid_for_with_time() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.charge_look(75, now);
        assert_eq!(pace.next(now), now);
        pace.charge_look(200, now);
        assert_eq!(pace.next(now), now + Duration::from_secs(10));
        let later = now + Duration::from_secs(5);
        pace.observe(50_000.0, later);
        assert_eq!(pace.next(later), later + Duration::from_millis(40));
    }

    #[test]
    fn reading_everything_has_a_budget_of_its_own() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.begin_look(0, now);
        // A page asks when it may read next.
        pace.charge_users(1000, now);
        assert_eq!(pace.end_look(2000), 2000);
        pace.charge_users(2050, now);
        assert_eq!(pace.next(now), now);
        assert_eq!(pace.until_next_whole(2000, true), Duration::from_secs(400));
        assert_eq!(pace.until_next_whole(2000, false), Duration::from_secs(40));
        pace.observe(400_000.0, now);
        let a_fifth = Duration::from_millis(400);
        assert_eq!(pace.until_next_whole(2000, false), a_fifth);
    }

    #[test]
    fn search_of_a_user_stops_the_looks_for_a_limited_time() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.charge_users(5000, now);
        assert_eq!(pace.next(now), now + Duration::from_secs(10));
        pace.charge_look(5100, now);
        assert_eq!(pace.next(now), now + Duration::from_secs(20));
        pace.charge_users(5200, now);
        assert_eq!(pace.next(now), now + Duration::from_secs(20));
    }

    #[test]
    fn requests_of_a_new_session_count_from_zero() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.charge_look(50, now);
        pace.charge_look(20, now);
        pace.charge_look(60, now);
        assert_eq!(pace.next(now), now + Duration::from_secs(1));
    }
}
