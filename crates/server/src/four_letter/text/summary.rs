//! Formatting of measurement summaries.

use crate::stats::Summary;

impl Summary {
    /// The minimum, 0 if there were no measurements.
    pub(super) fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The average as an integer, rounded down.
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
        // At least one decimal, without further trailing zeros.
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
