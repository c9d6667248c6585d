//! Figures of two servers, round by round, and their table.

use std::fmt::Write as _;

use anyhow::Result;

use crate::measure::machine::machine;
use crate::measure::spread::Spread;

/// A bound to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Bound {
    /// Whether it is met.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    /// The bound, and whether it is met.
    pub fn verdict(self, value: f64) -> String {
        match self.holds(value) {
            true => format!("{}: met", self.text()),
            false => format!("{}: **missed**", self.text()),
        }
    }

    /// The bound as a sign and a number.
    pub fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::AtLeast(limit) => format!("≥ {limit}"),
        }
    }
}

/// The goals of one figure.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    own: Option<Bound>,
    ratio: Option<Bound>,
}

impl Goal {
    /// No goal.
    pub const NONE: Self = Self {
        own: None,
        ratio: None,
    };

    /// At most `limit` times Apache's figure.
    pub const fn at_most(limit: f64) -> Self {
        Self::NONE.and_ratio(Bound::AtMost(limit))
    }

    /// At least `limit` times Apache's figure.
    pub const fn at_least(limit: f64) -> Self {
        Self::NONE.and_ratio(Bound::AtLeast(limit))
    }

    /// A bound of our figure, independent of Apache's.
    pub const fn own(bound: Bound) -> Self {
        Self {
            own: Some(bound),
            ..Self::NONE
        }
    }

    /// A bound in units of Apache's figure.
    pub const fn and_ratio(mut self, bound: Bound) -> Self {
        self.ratio = Some(bound);
        self
    }

    fn verdict(self, ours: f64, ratio: f64) -> String {
        let mut texts = Vec::new();
        let mut met = true;
        if let Some(bound) = self.own {
            texts.push(format!("{} itself", bound.text()));
            met &= bound.holds(ours);
        }
        if let Some(bound) = self.ratio {
            texts.push(bound.text());
            met &= bound.holds(ratio);
        }
        match (texts.is_empty(), met) {
            (true, _) => String::new(),
            (_, true) => format!("{}: met", texts.join(", ")),
            (_, false) => format!("{}: **missed**", texts.join(", ")),
        }
    }
}

/// One figure of one server in one round.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// What was measured.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The measured value.
    pub value: f64,
    /// The goal.
    pub goal: Goal,
}

/// The server of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The embedded server's.
    Ours,
    /// Apache's.
    Apache,
}

/// All figures so far.
#[derive(Debug, Default)]
pub struct Comparison {
    rows: Vec<Row>,
    raw: String,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    unit: &'static str,
    goal: Goal,
    ours: Vec<f64>,
    apache: Vec<f64>,
}

impl Comparison {
    /// Adds a figure, and returns a line about it.
    pub fn add(&mut self, round: usize, who: Who, figure: Figure) -> String {
        let Figure {
            name,
            unit,
            value,
            goal,
        } = figure;
        let row = match self.rows.iter().position(|row| row.name == name) {
            Some(index) => &mut self.rows[index],
            None => {
                self.rows.push(Row {
                    name,
                    unit,
                    goal,
                    ours: Vec::new(),
                    apache: Vec::new(),
                });
                self.rows.last_mut().expect("just pushed")
            }
        };
        let (values, label) = match who {
            Who::Ours => (&mut row.ours, "ours"),
            Who::Apache => (&mut row.apache, "apache"),
        };
        values.push(value);
        let line = format!("round {round} {label:6} {name}: {value:.2} {unit}\n");
        self.raw += &line;
        line
    }

    /// The table of medians, ranges, ratios and goals, with the raw figures behind it.
    pub fn report(&self, title: &str, how: &str) -> Result<String> {
        let mut text = format!("# {title}\n\n{}\n\n{how}\n\n", machine()?);
        text += &self.table();
        writeln!(text, "\n## Raw\n\n```\n{}```", self.raw)?;
        Ok(text)
    }

    fn table(&self) -> String {
        let mut text = String::from(
            "| what | ours | Apache | ours / Apache | goal |\n|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let (ours, apache) = (Spread::of(&row.ours), Spread::of(&row.apache));
            let ratio = ours.median / apache.median;
            // Two zeros have no ratio.
            let ratio_text = match ratio.is_finite() {
                true => format!("{ratio:.2}"),
                false => String::new(),
            };
            text += &format!(
                "| {} | {} | {} | {ratio_text} | {} |\n",
                row.name,
                ours.with_range(row.unit),
                apache.with_range(row.unit),
                row.goal.verdict(ours.median, ratio)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_medians_ratios_and_what_came_of_the_goals() {
        let mut comparison = Comparison::default();
        let figure = |name, value, goal| Figure {
            name,
            unit: "us",
            value,
            goal,
        };
        for (round, ours, apache) in [(1, 3.0, 8.0), (2, 1.0, 9.0), (3, 2.0, 4.0)] {
            let slow = Goal::at_most(0.5);
            comparison.add(round, Who::Ours, figure("get", ours, slow));
            comparison.add(round, Who::Apache, figure("get", apache, slow));
            let both = Goal::own(Bound::AtLeast(2.0)).and_ratio(Bound::AtLeast(1.0));
            comparison.add(round, Who::Ours, figure("growth", ours, both));
            comparison.add(round, Who::Apache, figure("growth", apache, both));
        }
        comparison.add(3, Who::Ours, figure("more", 12.0, Goal::NONE));
        comparison.add(3, Who::Apache, figure("more", 12.0, Goal::NONE));
        let report = comparison.report("Title", "how").unwrap();
        let lines = [
            "| get | 2.00 us (1.00 to 3.00) | 8.00 us (4.00 to 9.00) | 0.25 | ≤ 0.5: met |",
            "| growth | 2.00 us (1.00 to 3.00) | 8.00 us (4.00 to 9.00) | 0.25 | ≥ 2 itself, ≥ 1: **missed** |",
            "| more | 12.0 us (12.0 to 12.0) | 12.0 us (12.0 to 12.0) | 1.00 |  |",
            "round 3 apache growth: 4.00 us",
        ];
        for line in lines {
            assert!(report.contains(line), "{report}");
        }
    }
}
