//! Figures of several candidates, taken in rounds, and how they are shown.

use std::fmt;
use std::process::Command;

use anyhow::Result;

/// Values by row (what was measured), column (of whom) and round.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    rows: Vec<Row>,
    /// Every value as a line of text, as it came.
    raw: String,
}

#[derive(Debug, Clone)]
struct Row {
    name: String,
    unit: &'static str,
    columns: Vec<(String, Vec<f64>)>,
}

impl Figures {
    /// Adds the value of one round, and returns the line that tells of it.
    pub fn add(&mut self, row: &str, unit: &'static str, column: &str, value: f64) -> &str {
        let index = self.rows.iter().position(|known| known.name == row);
        let index = index.unwrap_or_else(|| {
            self.rows.push(Row {
                name: row.to_owned(),
                unit,
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

    /// The names of the rows, in the order in which they first came.
    pub fn rows(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.name.as_str())
    }

    /// What the rounds gave for one row and column, if it was measured.
    pub fn summary(&self, row: &str, column: &str) -> Option<Summary> {
        let row = self.rows.iter().find(|known| known.name == row)?;
        let (_, values) = row.columns.iter().find(|(name, _)| name == column)?;
        Some(Summary::of(values.clone(), row.unit))
    }

    /// Every value, a line each.
    pub fn raw(&self) -> &str {
        &self.raw
    }
}

/// The middle and the ends of several values.
#[derive(Debug, Clone, Copy)]
pub struct Summary {
    /// The middle one.
    pub median: f64,
    low: f64,
    high: f64,
    unit: &'static str,
}

impl Summary {
    fn of(mut values: Vec<f64>, unit: &'static str) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            low: values[0],
            high: values[values.len() - 1],
            unit,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            median,
            low,
            high,
            unit,
        } = self;
        let digits = usize::from(*high < 100.0);
        write!(
            f,
            "{median:.digits$} {unit} ({low:.digits$} to {high:.digits$})"
        )
    }
}

/// The median of some values.
pub fn median(values: Vec<f64>) -> f64 {
    Summary::of(values, "").median
}

/// Which commit was measured, and on what: for the head of a page.
pub fn commit_and_machine() -> Result<String> {
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output()?;
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or_default();
    Ok(format!(
        "commit {}, {} cores of {}",
        String::from_utf8_lossy(&commit.stdout).trim(),
        std::thread::available_parallelism()?,
        cpu.trim_start_matches([' ', '\t', ':']),
    ))
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
        let summary = figures.summary("cycle", "ours").unwrap();
        assert_eq!(summary.to_string(), "2.0 us (1.0 to 3.0)");
        assert!(figures.summary("cycle", "nobody").is_none());
    }
}
