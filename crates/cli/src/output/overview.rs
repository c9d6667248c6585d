//! The result of a survey, as lines, as JSON, and as facts that can change one by one.

use std::collections::{BTreeMap, BTreeSet};

use bellwether::inspect::{
    Line, LineKind, Overview, QueueEntry, Recipe, RecipeAt, WaitsFor, Wants,
};
use bellwether_dashboard::json;
use serde_json::{Value, json};

use crate::output::crash_text;
use crate::output::people::{age, contestant_text, foreign, who_text};
use crate::output::rendering::{counted, path_text};
use crate::output::transaction_text;
use crate::value::duration;

/// The lines for people.
pub(crate) fn rows(overview: &Overview) -> Vec<String> {
    let mut rows = Vec::new();
    let mut add = |text| rows.push(text);
    for sight in &overview.recipes {
        let path = path_text(&sight.path);
        add(format!("{path}  {}", title(&sight.what)));
        for entry in standing(sight) {
            let (word, who) = (word(entry), contestant_text(entry));
            let time = duration::text(age(entry.since));
            let besides = besides(entry);
            add(format!("  {word:<6} {who}, {time}{besides}"));
        }
        for remark in remarks(sight) {
            add(format!("  {remark}"));
        }
    }
    for circle in overview.deadlocks() {
        add(circle_title(&circle));
        for line in circle_lines(overview, &circle) {
            add(line);
        }
    }
    rows
}

/// A notice about directories that were not looked at.
pub(crate) fn unexplored(overview: &Overview) -> Option<String> {
    let left = overview.unexplored;
    (left > 0).then(|| format!("directories that were not looked at: {left} or more"))
}

/// One JSON object.
pub(crate) fn object(path: &str, overview: &Overview) -> Value {
    json!({
        "path": path,
        "sights": overview.recipes.iter().map(json::sight).collect::<Value>(),
        "deadlocks": json::deadlocks(overview),
        "unreadable": overview.unreadable,
        "unexplored": overview.unexplored,
    })
}

/// Facts without times, by path and a key that is unique at that path.
pub(crate) fn facts(overview: &Overview) -> BTreeMap<(String, String), String> {
    let mut facts = BTreeMap::new();
    for sight in &overview.recipes {
        for entry in standing(sight) {
            let who = contestant_text(entry);
            let fact = format!("{} {who}{}", word(entry), besides(entry));
            facts.insert((sight.path.clone(), entry.path.clone()), fact);
        }
        let fact = match &sight.what {
            Recipe::Line(_) => None,
            what => Some(title(what)),
        };
        let said = fact.into_iter().chain(remarks(sight)).enumerate();
        facts.extend(said.map(|(place, said)| ((sight.path.clone(), place.to_string()), said)));
    }
    for circle in overview.deadlocks() {
        let paths = circle.iter().map(|step| step.path.as_str());
        let key = circle.iter().map(|step| step.node.as_str());
        let key = key.collect::<Vec<_>>().join(" ");
        let at = paths.min().unwrap_or_default().to_owned();
        facts.insert((at, key), circle_title(&circle));
    }
    facts
}

/// All holders and waiters of a recipe.
pub(crate) fn standing(sight: &RecipeAt) -> &[QueueEntry] {
    match &sight.what {
        Recipe::Line(line) => &line.entries[..],
        Recipe::Queue(queue) => &queue.claims,
        Recipe::Tasks { claims, .. } => claims,
        _ => &[],
    }
}

pub(crate) fn title(what: &Recipe) -> String {
    match what {
        Recipe::Line(line) => line_title(line),
        Recipe::Barrier { .. } => "barrier, set".to_owned(),
        Recipe::DoubleBarrier(members) if members.is_open => {
            let (inside, round) = (members.here.len(), members.round);
            format!(
                "double barrier, round {round}: {inside} of {} inside",
                members.size
            )
        }
        Recipe::DoubleBarrier(members) => {
            let (here, missing) = (members.here.len(), members.missing());
            let round = members.round;
            format!("double barrier, round {round}: {here} here, {missing} missing")
        }
        Recipe::Queue(queue) => {
            let depth = queue.depth;
            let items = counted(depth.items, "item");
            let consumers = match queue.consumers {
                0 => String::new(),
                consumers => format!(", {} waiting", counted(consumers, "consumer")),
            };
            let dead = counted(depth.dead, "dead letter");
            format!(
                "queue, {items}, {} claimed, {dead}{consumers}",
                depth.claimed
            )
        }
        Recipe::Tasks { counts, .. } => format!(
            "tasks, {} open, {} running, {} done, {} failed",
            counts.open, counts.running, counts.done, counts.failed
        ),
        Recipe::Transaction(status) => transaction_text::title(status),
        _ => "a recipe that this version does not know".to_owned(),
    }
}

fn line_title(line: &Line) -> String {
    let mut title = line_kind(line.kind).to_owned();
    if let Some(library) = foreign(line.layout) {
        title += &format!(" of {library}");
    }
    if let Some(limit) = line.limit {
        let in_use = line.holders().map(|holder| match holder.wants {
            Wants::Permits(permits) => u64::from(permits),
            _ => 0,
        });
        title += &format!(", {} of {limit} permits in use", in_use.sum::<u64>());
    }
    match line.waiters().count() {
        0 => title,
        1 => format!("{title}, 1 waits"),
        waiters => format!("{title}, {waiters} wait"),
    }
}

pub(crate) fn line_kind(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Lock => "lock",
        LineKind::SimpleLock => "simple lock",
        LineKind::RwLock => "read/write lock",
        LineKind::Semaphore => "semaphore",
        LineKind::Election => "election",
        _ => "line",
    }
}

/// What a contender does.
pub(crate) fn word(entry: &QueueEntry) -> &'static str {
    match (entry.wants, entry.holds) {
        (Wants::Read, true) => "reads",
        (Wants::Write, true) if entry.is_downgraded => "reads",
        (Wants::Write, true) => "writes",
        (Wants::Leadership, true) => "leads",
        (Wants::Item, true) => "claims",
        (_, true) => "holds",
        (_, false) => "waits",
    }
}

/// What a contender wants, its token, and whether it was asked to release.
fn besides(entry: &QueueEntry) -> String {
    let mut text = match (entry.wants, entry.holds) {
        (Wants::Read, false) => ", to read".to_owned(),
        (Wants::Write, false) => ", to write".to_owned(),
        (Wants::Permits(permits @ 2..), _) => format!(", {permits} permits"),
        (Wants::Item, true) => format!(", {}", path_text(&entry.node)),
        _ => String::new(),
    };
    if entry.holds {
        text += &format!(", token {}", entry.token);
    }
    if let Some(asked) = &entry.revocation {
        text += match &asked.by {
            Some(by) => format!(", asked to release by {}", who_text(by)),
            None => ", asked to release".to_owned(),
        }
        .as_str();
    }
    text
}

/// The lines below the contenders.
fn remarks(sight: &RecipeAt) -> Vec<String> {
    match &sight.what {
        Recipe::Line(line) => {
            let crash = line.crash.iter();
            let told =
                crash.map(|crash| format!("crash  {}", crash_text::report(&sight.path, crash)));
            told.chain(mixture(line)).collect()
        }
        Recipe::Barrier { set_by, .. } => {
            let by = set_by.as_ref().map_or("an unknown client".into(), who_text);
            vec![format!("set by {by}")]
        }
        Recipe::DoubleBarrier(members) => members
            .here
            .iter()
            .map(|who| format!("here   {}", who_text(who)))
            .collect(),
        Recipe::Transaction(status) => transaction_text::sites(status),
        _ => Vec::new(),
    }
}

/// A line with contenders in several layouts.
pub(crate) fn mixture(line: &Line) -> Option<String> {
    let layouts = line.entries.iter().map(|one| one.layout);
    let libraries: BTreeSet<_> = layouts
        .map(|layout| foreign(layout).unwrap_or("bellwether"))
        .collect();
    let libraries: Vec<_> = libraries.into_iter().collect();
    line.mixes_layouts().then(|| {
        format!(
            "mixed layouts of {}, which do not exclude each other",
            libraries.join(" and ")
        )
    })
}

fn circle_title(circle: &[WaitsFor]) -> String {
    let mut steps: Vec<_> = circle.iter().map(|step| path_text(&step.path)).collect();
    steps.sort_unstable();
    format!(
        "deadlock among {} at {}",
        counted(circle.len(), "waiter"),
        steps.join(", ")
    )
}

fn circle_lines(overview: &Overview, circle: &[WaitsFor]) -> Vec<String> {
    let of = |path: &str, node: &str, owner: &str| {
        find(overview, path, node).map_or_else(|| owner.to_owned(), contestant_text)
    };
    let line = |step: &WaitsFor| {
        let path = path_text(&step.path);
        let waiter = of(&step.path, &step.node, &step.owner);
        let blocker = of(&step.path, &step.blocker, &step.waits_for);
        format!("  waits  {waiter} for {path}, blocked by {blocker}")
    };
    circle.iter().map(line).collect()
}

/// All holders and waiters at a path.
pub(crate) fn standing_at<'a>(
    overview: &'a Overview,
    path: &str,
) -> impl Iterator<Item = &'a QueueEntry> {
    let sights = overview
        .recipes
        .iter()
        .filter(move |sight| sight.path == path);
    sights.flat_map(standing)
}

/// The contender of a node at a path.
pub(crate) fn find<'a>(overview: &'a Overview, path: &str, node: &str) -> Option<&'a QueueEntry> {
    let line = line_at(overview, path)?;
    line.entries.iter().find(|one| one.node == node)
}

/// The line at a path.
pub(crate) fn line_at<'a>(overview: &'a Overview, path: &str) -> Option<&'a Line> {
    let mut sights = overview.recipes.iter().filter(|sight| sight.path == path);
    sights.find_map(|sight| match &sight.what {
        Recipe::Line(line) => Some(line),
        _ => None,
    })
}
