//! Latencies and their percentiles.

use std::fmt;
use std::time::Duration;

/// Every latency of a run.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    nanos: Vec<u64>,
}

impl Latencies {
    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        self.nanos
            .push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of another run.
    pub fn extend(&mut self, other: Self) {
        self.nanos.extend(other.nanos);
    }

    /// The number of latencies.
    pub fn count(&self) -> usize {
        self.nanos.len()
    }

    /// Sorts them, for queries.
    pub fn sorted(mut self) -> Sorted {
        self.nanos.sort_unstable();
        Sorted(self.nanos)
    }
}

/// Latencies in order.
#[derive(Debug, Clone)]
pub struct Sorted(Vec<u64>);

impl Sorted {
    /// The latency that a `share` of all did not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index between 0 and the last"
        )]
        let index = ((self.0.len().saturating_sub(1)) as f64 * share).round() as usize;
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let us = self.0.get(index).copied().unwrap_or(0) as f64 / 1000.0;
        us
    }

    /// Counts by powers of two of a microsecond, as a histogram.
    pub fn histogram(&self) -> String {
        let mut lines = String::new();
        let mut bound_us = 1;
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            let count = rest.partition_point(|nanos| *nanos < bound_us * 1000);
            if count > 0 {
                lines += &format!("  < {bound_us:>8} us {count:>9}\n");
            }
            rest = &rest[count..];
            bound_us *= 2;
        }
        lines
    }
}

impl fmt::Display for Sorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |share| self.quantile_us(share);
        write!(
            f,
            "p50 {:.0} us, p99 {:.0} us, max {:.0} us",
            us(0.5),
            us(0.99),
            us(1.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measurements() {
        let mut latencies = Latencies::default();
        for us in (1..=101).rev() {
            latencies.add(Duration::from_micros(us));
        }
        let sorted = latencies.sorted();
        assert!((sorted.quantile_us(0.5) - 51.0).abs() < 1e-9);
        assert!((sorted.quantile_us(1.0) - 101.0).abs() < 1e-9);
    }
}
