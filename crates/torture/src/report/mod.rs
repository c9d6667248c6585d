//! Statistics and report of a run.

mod page;
mod timeline;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_testkit::history::{Moment, What};
use serde::Serialize;

use crate::recipe::Recipe;
use crate::record::{Did, Record};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Statistics.
    pub figures: Figures,
    /// Violations by recipe.
    pub violations: Vec<(Recipe, String)>,
}

/// Statistics of a whole run.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Figures {
    /// The seeds of all rounds.
    pub seeds: Vec<u64>,
    /// Total time of faults, in all rounds.
    pub faults_seconds: f64,
    /// Number of records.
    pub records: usize,
    /// Number of faults of each kind.
    pub faults: BTreeMap<String, usize>,
    /// By recipe.
    pub recipes: BTreeMap<Recipe, Counts>,
}

/// Statistics of one recipe.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Counts {
    /// Calls that succeeded.
    pub successes: usize,
    /// Calls that failed.
    pub failures: usize,
    /// Lost holds whose holders learned of the loss.
    pub lost: usize,
    /// Holds whose holder was killed or dropped them.
    pub dropped: usize,
    /// The longest time without a success, while faults happened.
    pub longest_gap_ms: u64,
}

impl Figures {
    /// Statistics of one round.
    pub(crate) fn of(
        seed: u64,
        recipes: &[Recipe],
        records: &[Record],
        began: Moment,
        calm: Moment,
    ) -> Self {
        let mut figures = Self {
            seeds: vec![seed],
            faults_seconds: calm.since(began).as_secs_f64(),
            records: records.len(),
            ..Self::default()
        };
        for record in records.iter().filter(|record| record.recipe.is_none()) {
            if let Some(fault) = fault_name(record) {
                *figures.faults.entry(fault).or_default() += 1;
            }
        }
        for &recipe in recipes {
            let own = records.iter().filter(|one| one.recipe == Some(recipe));
            figures.recipes.insert(recipe, Counts::of(own, began, calm));
        }
        figures
    }

    /// Adds another round.
    pub(crate) fn add(&mut self, round: &Self) {
        self.seeds.extend(&round.seeds);
        self.faults_seconds += round.faults_seconds;
        self.records += round.records;
        for (fault, count) in &round.faults {
            *self.faults.entry(fault.clone()).or_default() += count;
        }
        for (recipe, counts) in &round.recipes {
            self.recipes.entry(*recipe).or_default().add(counts);
        }
    }
}

impl Counts {
    fn of<'a>(own: impl Iterator<Item = &'a Record>, began: Moment, calm: Moment) -> Self {
        let mut counts = Self::default();
        let mut last = began;
        let mut longest = Duration::ZERO;
        for record in own {
            match record.did {
                Did::Hold(What::Failed(_)) => counts.failures += 1,
                Did::Hold(What::Lost { .. }) => counts.lost += 1,
                Did::Hold(What::Dropping { .. }) => counts.dropped += 1,
                _ => {}
            }
            if record.is_success() {
                counts.successes += 1;
                if record.at <= calm {
                    longest = longest.max(record.at.since(last));
                    last = record.at;
                }
            }
        }
        longest = longest.max(calm.since(last));
        counts.longest_gap_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        counts
    }

    fn add(&mut self, round: &Self) {
        self.successes += round.successes;
        self.failures += round.failures;
        self.lost += round.lost;
        self.dropped += round.dropped;
        self.longest_gap_ms = self.longest_gap_ms.max(round.longest_gap_ms);
    }
}

/// Kind of a fault, without its details. Ends of faults and stalls do not count.
pub(crate) fn fault_name(record: &Record) -> Option<String> {
    let Did::Hold(what) = &record.did else {
        return None;
    };
    match what {
        What::Paused => Some("paused".into()),
        What::Expired => Some("session expired".into()),
        What::Fault(text) if text.ends_with(" back") || text.starts_with("not expired") => None,
        What::Fault(text) => {
            let name = text.split(['(', '{']).next().unwrap_or(text);
            // Drops the number of the member.
            let name = name.replace(|c: char| c.is_ascii_digit(), "");
            Some(name.trim().to_lowercase().replace("  ", " "))
        }
        _ => None,
    }
}

/// Writes `index.html`, `summary.json` and `history.jsonl`, the history of the last round, to a folder.
pub(crate) fn write(folder: &Path, outcome: &Outcome, records: &[Record]) -> Result<()> {
    let written = || -> Result<()> {
        fs::create_dir_all(folder)?;
        let mut lines = BufWriter::new(File::create(folder.join("history.jsonl"))?);
        for record in records {
            serde_json::to_writer(&mut lines, record)?;
            lines.write_all(b"\n")?;
        }
        lines.flush()?;
        let summary = serde_json::to_string_pretty(&outcome.summary())?;
        fs::write(folder.join("summary.json"), summary)?;
        fs::write(folder.join("index.html"), page::render(outcome, records))?;
        Ok(())
    };
    written().with_context(|| format!("cannot write the report to {}", folder.display()))
}

impl Outcome {
    /// Whether every guarantee was kept.
    pub fn is_right(&self) -> bool {
        self.violations.is_empty()
    }

    /// Everything as one JSON object.
    pub fn summary(&self) -> serde_json::Value {
        let violations = self.violations.iter();
        let violations: Vec<_> = violations
            .map(|(recipe, what)| serde_json::json!({"recipe": recipe, "what": what}))
            .collect();
        serde_json::json!({
            "right": self.is_right(),
            "violations": violations,
            "figures": self.figures,
        })
    }
}
