//! The result of a survey as rows of a table, problems first.

use std::time::SystemTime;

use bellwether::FencingToken;
use bellwether::inspect::{Overview, QueueEntry, Recipe, RecipeAt};

use crate::output::overview::{standing, title, word};
use crate::output::people::{contestant_text, who_text};
use crate::output::rendering::path_text;

/// How urgent a row is; the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Deadlock,
    Crashed,
    /// Asked to release, and still holding.
    Asked,
    Holds,
    Waits,
    /// Neither a holder nor a waiter, such as a queue.
    Other,
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The state in a word.
    pub(crate) word: &'static str,
    pub(crate) path: String,
    /// The path as it is shown, with escapes.
    pub(crate) shown_path: String,
    /// The recipe at the path.
    pub(crate) what: String,
    pub(crate) who: String,
    pub(crate) since: Option<SystemTime>,
    pub(crate) token: Option<FencingToken>,
    /// The contender of the row.
    pub(crate) entry: Option<QueueEntry>,
}

impl Entry {
    /// Whether the row contains the filter.
    pub(crate) fn has(&self, text: &str) -> bool {
        let columns = [&self.shown_path, &self.what, &self.who];
        columns.iter().any(|column| column.contains(text)) || self.word.contains(text)
    }

    /// What identifies the row over several surveys.
    pub(crate) fn key(&self) -> (&str, Option<&str>) {
        let node = self.entry.as_ref().map(|one| one.path.as_str());
        (&self.path, node)
    }
}

/// The numbers of the summary line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) held: usize,
    pub(crate) waiting: usize,
    pub(crate) deadlocks: usize,
    pub(crate) crashed: usize,
}

impl Counts {
    pub(crate) fn of(overview: &Overview) -> Self {
        let all = || overview.recipes.iter().flat_map(standing);
        let has_crashed =
            |sight: &&RecipeAt| matches!(&sight.what, Recipe::Line(line) if line.crash.is_some());
        Self {
            held: all().filter(|one| one.holds).count(),
            waiting: all().filter(|one| !one.holds).count(),
            deadlocks: overview.deadlocks().len(),
            crashed: overview.recipes.iter().filter(has_crashed).count(),
        }
    }
}

/// All rows, the most urgent first, then by path and by place in line.
pub(crate) fn entries(overview: &Overview) -> Vec<Entry> {
    let circles = overview.deadlocks();
    let is_stuck = |one: &QueueEntry, path: &str| {
        let mut steps = circles.iter().flatten();
        steps.any(|step| step.path == path && step.node == one.node)
    };
    let mut entries = Vec::new();
    for sight in &overview.recipes {
        let row = Entry {
            state: State::Other,
            word: "",
            path: sight.path.clone(),
            shown_path: path_text(&sight.path),
            what: title(&sight.what),
            who: String::new(),
            since: None,
            token: None,
            entry: None,
        };
        for one in standing(sight) {
            let (state, word) = match one {
                one if is_stuck(one, &sight.path) => (State::Deadlock, "DEADLOCK"),
                one if one.holds && one.revocation.is_some() => (State::Asked, "asked"),
                one if one.holds => (State::Holds, word(one)),
                one => (State::Waits, word(one)),
            };
            entries.push(Entry {
                state,
                word,
                who: contestant_text(one),
                since: Some(one.since),
                token: one.holds.then_some(one.token),
                entry: Some(one.clone()),
                ..row.clone()
            });
        }
        match &sight.what {
            Recipe::Line(line) => entries.extend(line.crash.as_ref().map(|crash| Entry {
                state: State::Crashed,
                word: "crashed",
                who: crash.who.as_ref().map_or_else(String::new, who_text),
                token: crash.token,
                ..row
            })),
            _ => entries.push(row),
        }
    }
    entries.sort_by(|one, other| (one.state, &one.path).cmp(&(other.state, &other.path)));
    entries
}
