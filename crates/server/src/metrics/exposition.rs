//! Prometheus text format.

use std::fmt::{Display, Write as _};

use super::histogram::Histogram;

/// Metrics as text, in the order in which they are added.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    /// A counter; its name ends in `_total`.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.head(name, "counter", help);
        self.sample(name, &[], value);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Header of a metric with labels. Its samples follow by [`Self::sample`].
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, text)| format!("{label}=\"{text}\""))
            .collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    /// Samples of a histogram, below its header. Values are divided by `unit`: times are measured in microseconds and shown in seconds.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        unit: f64,
        values: &Histogram,
    ) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, below) in values.cumulative() {
            let bound = bound.map_or("+Inf".to_owned(), |bound| in_units(bound, unit).to_string());
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.sample(&bucket, &labels, below);
            count = below;
        }
        self.sample(&format!("{name}_sum"), labels, in_units(values.sum(), unit));
        self.sample(&format!("{name}_count"), labels, count);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has floating point numbers only"
)]
fn in_units(value: u64, unit: f64) -> f64 {
    value as f64 / unit
}
