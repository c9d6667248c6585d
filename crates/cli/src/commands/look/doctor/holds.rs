//! Deadlocks, crashed and stale holds, and dead letters.

use std::path::Path;

use bellwether::inspect::{Line, Overview, QueueEntry, Recipe, RecipeAt, Survey};
use bellwether::{Client, Who};

use super::finding::Finding;
use crate::output::crash_text;
use crate::output::overview::{mixture, unexplored};
use crate::output::people::{age, contestant_text};
use crate::output::rendering::counted;

/// A queue with more items is near its limit, which is 10,000 by default.
const DEPTH_NEAR: usize = 8_000;

/// Reads at most `directories_max` directories at and below `top`.
pub(super) async fn look(
    client: &Client,
    top: &str,
    directories_max: usize,
) -> anyhow::Result<Vec<Finding>> {
    let survey = Survey::new(client, top).directories_max(directories_max);
    let overview = survey.look().await?;
    let mut findings = circles(&overview);
    for sight in &overview.recipes {
        match &sight.what {
            Recipe::Line(line) => findings.extend(of_line(sight, line)),
            Recipe::Queue(queue) => {
                let letters = counted(queue.depth.dead, "dead letter");
                let found = queue.depth.dead > 0;
                findings.extend(found.then(|| set_aside(&sight.path, &letters, "queue dead")));
                if queue.depth.items > DEPTH_NEAR {
                    let items = counted(queue.depth.items, "item");
                    let what = format!("{items} wait in {}", sight.path);
                    let advice =
                        "by default, puts are refused from 10,000 items on: start more consumers";
                    findings.push(Finding::warning("queues", what).advice(advice));
                }
            }
            Recipe::Tasks { counts, .. } => {
                let failed = counted(counts.failed, "failed task");
                let found = counts.failed > 0;
                findings.extend(found.then(|| set_aside(&sight.path, &failed, "tasks ls")));
            }
            _ => {}
        }
    }
    if let Some(told) = unexplored(&overview) {
        let advice = "name a path below, or raise --max-directories";
        findings.push(Finding::warning("holds", told).advice(advice));
    }
    if findings.is_empty() {
        let things = counted(overview.recipes.len(), "recipe");
        let what = format!("{things} in use below {top}, no problems");
        findings.push(Finding::fine("holds", what));
    }
    Ok(findings)
}

fn circles(overview: &Overview) -> Vec<Finding> {
    let circles = overview.deadlocks();
    let found = circles.iter().map(|circle| {
        let paths: Vec<_> = circle.iter().map(|step| step.path.as_str()).collect();
        let what = format!("a deadlock at {}", paths.join(", "));
        let advice = format!(
            "`bellwether locks` shows the waiters; `bellwether break {}` ends the deadlock",
            paths.first().unwrap_or(&"PATH")
        );
        Finding::critical("holds", what).advice(advice)
    });
    found.collect()
}

fn of_line(sight: &RecipeAt, line: &Line) -> Vec<Finding> {
    let path = &sight.path;
    let mut findings = Vec::new();
    if let Some(crash) = &line.crash {
        let advice = format!("repair what it left behind, then `bellwether lock --clear {path}`");
        let told = crash_text::report(path, crash);
        let finding = match crash_text::is_interrupt(crash) {
            true => Finding::fine("holds", told),
            false => Finding::warning("holds", told),
        };
        findings.push(finding.advice(advice));
    }
    if let Some(mixture) = mixture(line) {
        let advice = "use one --layout in all commands, or another path";
        let what = format!("{path} has {mixture}");
        findings.push(Finding::critical("holds", what).advice(advice));
    }
    for holder in line.holders() {
        let who = contestant_text(holder);
        if is_dead(holder) {
            let what = format!("{who} holds {path}, but its process has ended");
            let advice =
                format!("the hold ends with its session; `bellwether break {path}` ends it now");
            findings.push(Finding::warning("holds", what).advice(advice));
        } else if is_overdue(holder) {
            let what = format!("{who} was asked to release {path}, and has not");
            let advice = format!("`bellwether break {path}` breaks the hold");
            findings.push(Finding::warning("holds", what).advice(advice));
        }
    }
    findings
}

/// Whether the holder is a process of this host that has ended.
fn is_dead(holder: &QueueEntry) -> bool {
    let Some(who) = &holder.who else {
        return false;
    };
    who.host == Who::host_of_process()
        && who.pid != 0
        && !Path::new(&format!("/proc/{}", who.pid)).exists()
}

/// Whether the grace of a request to release is over.
fn is_overdue(holder: &QueueEntry) -> bool {
    let asked = holder.revocation.as_ref();
    asked.is_some_and(|asked| {
        let since = asked.by.as_ref().map(bellwether::Who::since);
        let grace = asked.grace();
        since
            .zip(grace)
            .is_some_and(|(since, grace)| age(since) > grace)
    })
}

/// Dead letters or failed tasks, and the command that shows them.
fn set_aside(path: &str, what: &str, command: &str) -> Finding {
    let advice = format!("`bellwether {command} {path}` shows the reasons");
    Finding::warning("queues", format!("{path} has {what}")).advice(advice)
}
