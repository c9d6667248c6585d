//! Numbers of which only a summary is kept.

/// What is known of many measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The smallest; any number if there were none, so that a running minimum can start high.
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: u64,
    pub(crate) count: u64,
}

/// The measurements that 50, 95, 99 and 99.9 of a hundred did not exceed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) p50: u64,
    pub(crate) p95: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
}

impl Summary {
    /// The smallest measurement, 0 if there were none.
    pub(super) fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The average in whole numbers, rounded down.
    pub(super) fn whole_average(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The average as Java prints a double, rounded to four decimals (`AvgMinMaxCounter.getAvg`).
    pub(super) fn average(&self) -> String {
        let ten_thousandths = match u128::from(self.count) {
            0 => 0,
            count => (u128::from(self.sum) * 10_000 + count / 2) / count,
        };
        let whole = ten_thousandths / 10_000;
        let decimals = format!("{:04}", ten_thousandths % 10_000);
        // At least one decimal, and no more zeros at the end than that takes.
        let (first, rest) = decimals.split_at(1);
        format!("{whole}.{first}{}", rest.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn average(sum: u64, count: u64) -> String {
        let summary = Summary {
            sum,
            count,
            ..Summary::default()
        };
        summary.average()
    }

    #[test]
    fn averages_print_as_java_doubles_of_four_decimals() {
        assert_eq!(average(0, 0), "0.0");
        assert_eq!(average(3, 4), "0.75");
        assert_eq!(average(204, 206), "0.9903");
        assert_eq!(average(5, 206), "0.0243");
        assert_eq!(average(67, 32), "2.0938");
        assert_eq!(average(158, 206), "0.767");
        assert_eq!(average(70, 10), "7.0");
        assert_eq!(average(99_999, 100_000), "1.0");
        assert_eq!(average(u64::MAX, 1), "18446744073709551615.0");
    }

    #[test]
    fn nothing_measured_is_zero_throughout() {
        let none = Summary {
            min: u64::MAX,
            ..Summary::default()
        };
        assert_eq!((none.min(), none.whole_average()), (0, 0));
    }
}
