//! Several values of one figure.

/// The median and the range of some values.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    least: f64,
    /// The median.
    pub median: f64,
    most: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self {
            least: sorted[0],
            median: sorted[sorted.len() / 2],
            most: sorted[sorted.len() - 1],
        }
    }

    /// The median, and the range in brackets.
    pub fn with_range(&self, unit: &str) -> String {
        let shown = |value| number(value, self.most);
        let (least, median, most) = (shown(self.least), shown(self.median), shown(self.most));
        format!("{median} {unit} ({least} to {most})")
    }
}

/// A number with digits as appropriate for the magnitude of `size`, and thousands separators.
fn number(value: f64, size: f64) -> String {
    let digits = match size {
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = match text.find('.') {
        Some(point) => text.split_at(point),
        None => (&text[..], ""),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_easy_to_read() {
        assert_eq!(number(1_234_567.8, 1e6), "1,234,568");
        assert_eq!(number(123.4, 123.4), "123");
        assert_eq!(number(12.34, 99.0), "12.3");
        assert_eq!(number(0.456, 0.456), "0.46");
    }
}
