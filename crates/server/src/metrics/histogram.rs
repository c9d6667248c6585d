//! Histograms with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of buckets, including the one without an upper bound.
const BUCKETS_MAX: usize = 18;

/// Upper bounds for durations, in microseconds.
pub(super) const MICROSECONDS: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Upper bounds for batch sizes.
pub(super) const COUNTS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000];

/// Time window of percentiles: they cover between one and two windows.
const WINDOW: Duration = Duration::from_secs(5);

type Counts = [u64; BUCKETS_MAX];

/// A histogram for many concurrent writers and few readers.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [u64],
    buckets: [AtomicU64; BUCKETS_MAX],
    sum: AtomicU64,
    /// Earlier counts, to compute percentiles of the last seconds. Updated by the callers that ask for them.
    before: Mutex<[(Option<Instant>, Counts); 2]>,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < BUCKETS_MAX, "there is a bucket beyond them");
        Self {
            bounds,
            buckets: Default::default(),
            sum: AtomicU64::new(0),
            before: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Like [`Self::add`], in microseconds.
    pub(crate) fn add_time(&self, time: Duration) {
        // `as_micros` computes in 128 bits, which is measurable in the cost of each request.
        let seconds = time.as_secs().saturating_mul(1_000_000);
        self.add(seconds.saturating_add(u64::from(time.subsec_micros())));
    }

    /// Number of values up to each bound; the last entry counts all values.
    pub(super) fn cumulative(&self) -> Vec<(Option<u64>, u64)> {
        let counts = self.counts();
        let mut below = 0;
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds
            .zip(counts)
            .map(|(bound, count)| {
                below += count;
                (bound, below)
            })
            .collect()
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// Smallest bound that `part` of the values of the last seconds do not exceed; 0 if there were none.
    pub(crate) fn recent_percentile(&self, part: f64, now: Instant) -> u64 {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: counts read before it could be lower than those that another caller has stored meanwhile.
        let counts = self.counts();
        let is_due = before[1].0.is_none_or(|at| now.duration_since(at) > WINDOW);
        if is_due {
            before[0] = before[1];
            before[1] = (Some(now), counts);
        }
        let recent: Vec<_> = counts
            .iter()
            .zip(before[0].1)
            .map(|(now, then)| now - then)
            .collect();
        drop(before);
        let total: u64 = recent.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a percentile need not be exact"
        )]
        let wanted = (total as f64 * part).ceil() as u64;
        let mut below = 0;
        for (bucket, count) in recent.iter().enumerate() {
            below += count;
            if below >= wanted && wanted > 0 {
                let last = self.bounds.len() - 1;
                return self.bounds[bucket.min(last)];
            }
        }
        0
    }

    fn counts(&self) -> Counts {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_on_a_bound_belongs_below_it_and_all_are_counted() {
        let histogram = Histogram::new(COUNTS);
        for value in [1, 2, 2, 3, 5000] {
            histogram.add(value);
        }
        let cumulative = histogram.cumulative();
        assert_eq!(&cumulative[..3], [(Some(1), 1), (Some(2), 3), (Some(4), 4)]);
        assert_eq!(cumulative.last(), Some(&(None, 5)));
        assert_eq!(cumulative.len(), COUNTS.len() + 1);
        assert_eq!(histogram.sum(), 5008);
    }

    #[test]
    fn percentiles_are_of_late() {
        let histogram = Histogram::new(MICROSECONDS);
        let start = Instant::now();
        assert_eq!(histogram.recent_percentile(0.5, start), 0);
        for _ in 0..99 {
            histogram.add_time(Duration::from_micros(70));
        }
        histogram.add_time(Duration::from_millis(7));
        assert_eq!(histogram.recent_percentile(0.5, start), 100);
        assert_eq!(histogram.recent_percentile(0.999, start), 10_000);
        // Two windows later none of them counts any more.
        for later in [6, 12, 18] {
            histogram.recent_percentile(0.5, start + Duration::from_secs(later));
        }
        assert_eq!(
            histogram.recent_percentile(0.999, start + Duration::from_secs(18)),
            0
        );
    }
}
