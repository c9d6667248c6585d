//! Holds that nobody will end, and things that nobody will take.

use std::path::Path;

use bellwether::{Client, Contestant, Line, Overview, Recipe, Sight};

use super::finding::Finding;
use crate::commands::locks::look as survey;
use crate::local;
use crate::people::{age, contestant_text};
use crate::previous;
use crate::rendering::counted;

/// A queue with more items is near its limit, 10,000 unless its producers say otherwise.
const DEPTH_NEAR: usize = 8_000;

pub(super) async fn look(client: &Client, top: &str) -> anyhow::Result<Vec<Finding>> {
    let overview = survey(client, top).await?;
    let mut findings = circles(&overview);
    for sight in &overview.sights {
        match &sight.what {
            Recipe::Line(line) => findings.extend(of_line(sight, line)),
            Recipe::Queue(queue) => {
                findings.extend(dead_letters(&sight.path, "queue dead", queue.depth.dead));
                if queue.depth.items > DEPTH_NEAR {
                    let items = counted(queue.depth.items, "item");
                    let what = format!("{items} wait in {}", sight.path);
                    let advice = "puts are refused from 10,000 on: start more consumers";
                    findings.push(Finding::warning("queues", what).advice(advice));
                }
            }
            Recipe::Tasks { counts, .. } => {
                findings.extend(dead_letters(&sight.path, "tasks status", counts.failed));
            }
            _ => {}
        }
    }
    if findings.is_empty() {
        let things = counted(overview.sights.len(), "thing");
        let what = format!("{things} in use below {top}, all in order");
        findings.push(Finding::fine("holds", what));
    }
    Ok(findings)
}

fn circles(overview: &Overview) -> Vec<Finding> {
    let circles = overview.deadlocks();
    let found = circles.iter().map(|circle| {
        let paths: Vec<_> = circle.iter().map(|step| step.path.as_str()).collect();
        let what = format!(
            "a deadlock: each waits for the next at {}",
            paths.join(", ")
        );
        let advice = format!(
            "`bellwether locks` shows who; `bellwether break {}` ends it",
            paths.first().unwrap_or(&"PATH")
        );
        Finding::critical("holds", what).advice(advice)
    });
    found.collect()
}

fn of_line(sight: &Sight, line: &Line) -> Vec<Finding> {
    let path = &sight.path;
    let mut findings = Vec::new();
    if let Some(crash) = &line.crash {
        let advice = format!("repair what it left behind, then `bellwether lock --clear {path}`");
        let told = previous::told(path, crash);
        findings.push(Finding::warning("holds", told).advice(advice));
    }
    for holder in line.holders() {
        let who = contestant_text(holder);
        if is_dead(holder) {
            let what = format!("{who} holds {path}, and its process is gone");
            let advice = format!("it ends with its session; `bellwether break {path}` ends it now");
            findings.push(Finding::warning("holds", what).advice(advice));
        } else if is_overdue(holder) {
            let what = format!("{who} was told to let go of {path}, and has not");
            let advice = format!("`bellwether break {path}` takes it away");
            findings.push(Finding::warning("holds", what).advice(advice));
        }
    }
    findings
}

/// Whether somebody said to be a process of this machine that is not there any more.
fn is_dead(holder: &Contestant) -> bool {
    let Some(who) = &holder.who else {
        return false;
    };
    who.host == local::host() && who.pid != 0 && !Path::new(&format!("/proc/{}", who.pid)).exists()
}

/// Whether the grace of a request to let go is over.
fn is_overdue(holder: &Contestant) -> bool {
    let asked = holder.revocation.as_ref();
    asked.is_some_and(|asked| {
        let since = asked.by.as_ref().map(bellwether::Who::since);
        let grace = asked.grace();
        since
            .zip(grace)
            .is_some_and(|(since, grace)| age(since) > grace)
    })
}

fn dead_letters(path: &str, command: &str, letters: usize) -> Option<Finding> {
    let what = match letters {
        0 => return None,
        1 => format!("1 thing in {path} was given up"),
        letters => format!("{letters} things in {path} were given up"),
    };
    let advice = format!("`bellwether {command} {path}` tells why");
    Some(Finding::warning("queues", what).advice(advice))
}
