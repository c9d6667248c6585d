//! Figures of several participants, taken in rounds.

use anyhow::{Context, Result};

use crate::measure::spread::Spread;

/// Values by row (what was measured), column (participant) and round.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    rows: Vec<FigureRow>,
    /// Every value as a line of text, in order.
    raw: String,
}

#[derive(Debug, Clone)]
struct FigureRow {
    name: String,
    columns: Vec<(String, Vec<f64>)>,
}

impl Figures {
    /// Adds the value of one round, and returns it as a line of text.
    pub fn add(&mut self, row: &str, unit: &str, column: &str, value: f64) -> &str {
        let index = self.rows.iter().position(|known| known.name == row);
        let index = index.unwrap_or_else(|| {
            self.rows.push(FigureRow {
                name: row.to_owned(),
                columns: Vec::new(),
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[index];
        match row.columns.iter_mut().find(|(name, _)| name == column) {
            Some((_, values)) => values.push(value),
            None => row.columns.push((column.to_owned(), vec![value])),
        }
        let round = row
            .columns
            .iter()
            .map(|(_, values)| values.len())
            .max()
            .unwrap_or(0);
        let start = self.raw.len();
        let name = &row.name;
        self.raw += &format!("round {round} {column}, {name}: {value:.1} {unit}\n");
        self.raw[start..].trim_end()
    }

    /// Records that there is no value in this round, and returns it as a line of text.
    pub fn fail(&mut self, row: &str, column: &str, error: &anyhow::Error) -> &str {
        let start = self.raw.len();
        self.raw += &format!("{column}, {row}: failed: {error:#}\n");
        self.raw[start..].trim_end()
    }

    /// The values of one row and column, if measured.
    pub fn spread(&self, row: &str, column: &str) -> Option<Spread> {
        let row = self.rows.iter().find(|known| known.name == row)?;
        let (_, values) = row.columns.iter().find(|(name, _)| name == column)?;
        Some(Spread::of(values))
    }

    /// The median of the rounds.
    pub fn median(&self, row: &str, column: &str) -> Result<f64> {
        let spread = self.spread(row, column);
        let spread = spread.with_context(|| format!("{column} has no {row}"))?;
        Ok(spread.median)
    }

    /// The ratio to the best of `others`, some of which may have failed.
    pub fn to_best(&self, row: &str, column: &str, others: &[&str]) -> Result<f64> {
        let medians = others
            .iter()
            .filter_map(|other| self.spread(row, other))
            .map(|spread| spread.median);
        let best = medians.max_by(f64::total_cmp);
        let best = best.with_context(|| format!("none of the others has {row}"))?;
        Ok(self.median(row, column)? / best)
    }

    /// Every value, one per line.
    pub fn raw(&self) -> &str {
        &self.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_summed_up_by_row_and_column() {
        let mut figures = Figures::default();
        for value in [3.0, 1.0, 2.0] {
            figures.add("cycle", "us", "ours", value);
        }
        let line = figures.add("cycle", "us", "theirs", 7.0);
        assert_eq!(line, "round 3 theirs, cycle: 7.0 us");
        let spread = figures.spread("cycle", "ours").unwrap();
        assert_eq!(spread.with_range("us"), "2.00 us (1.00 to 3.00)");
        assert!(figures.spread("cycle", "nobody").is_none());
    }
}
