//! Several values of one figure.

/// The middle and the ends of some values.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    least: f64,
    /// The middle one.
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
    pub fn text(&self, unit: &str) -> String {
        let digits = match self.most {
            most if most < 10.0 => 2,
            most if most < 100.0 => 1,
            _ => 0,
        };
        let Self {
            least,
            median,
            most,
        } = self;
        format!("{median:.digits$} {unit} ({least:.digits$} to {most:.digits$})")
    }
}
