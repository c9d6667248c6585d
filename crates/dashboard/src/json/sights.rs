//! Recipes in use as JSON, one object each.

use bellwether::inspect::{LineKind, Overview, QueueEntry, Recipe, RecipeAt, WaitsFor};
use bellwether::line::Layout;
use bellwether::two_phase::{Status, Vote};
use serde_json::{Value, json};

use super::{ms, people};

/// One recipe in use: its path, its name, and the fields of its kind.
#[must_use]
pub fn sight(sight: &RecipeAt) -> Value {
    let mut object = json!({"path": sight.path, "recipe": recipe(&sight.what)});
    let entries = |list: &[QueueEntry]| list.iter().map(people::entry).collect::<Value>();
    let fields = match &sight.what {
        Recipe::Line(line) => json!({
            "layout": match line.layout {
                Layout::Curator => "Curator",
                Layout::Kazoo => "kazoo",
                _ => "bellwether",
            },
            "holders": line.holders().map(people::entry).collect::<Value>(),
            "waiters": line.waiters().map(people::entry).collect::<Value>(),
            "mixed_layouts": line.mixes_layouts(),
            "limit": line.limit,
            "crash": line.crash.as_ref().map(people::crash),
        }),
        Recipe::Barrier { set_by, since } => json!({
            "set_by": set_by.as_ref().map(people::who),
            "since_ms": ms(*since),
        }),
        Recipe::DoubleBarrier(members) => json!({
            "round": members.round,
            "size": members.size,
            "open": members.is_open,
            "missing": members.missing(),
            "here": members.here.iter().map(people::who).collect::<Value>(),
        }),
        Recipe::Queue(queue) => json!({
            "items": queue.depth.items,
            "claimed": queue.depth.claimed,
            "dead": queue.depth.dead,
            "consumers": queue.consumers,
            "claims": entries(&queue.claims),
        }),
        Recipe::Tasks { counts, claims } => json!({
            "open": counts.open,
            "running": counts.running,
            "done": counts.done,
            "failed": counts.failed,
            "claims": entries(claims),
        }),
        Recipe::Transaction(status) => transaction(status),
        _ => json!({}),
    };
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    object
}

/// State of a two-phase commit transaction.
#[must_use]
pub fn transaction(status: &Status) -> Value {
    let sites: Value = status
        .sites
        .iter()
        .map(|(name, site)| {
            let vote = site.ballot.as_ref().map(|ballot| &ballot.vote);
            json!({
                "site": name,
                "vote": vote.map(|vote| match vote {
                    Vote::Commit => "commit",
                    Vote::Abort(_) => "abort",
                }),
                "reason": vote.and_then(|vote| match vote {
                    Vote::Commit => None,
                    Vote::Abort(reason) => Some(reason),
                }),
                "here": site.is_here,
                "applied": site.has_applied,
            })
        })
        .collect();
    json!({
        "decision": status.decision.map(|decision| decision.to_string()),
        "coordinators": status.coordinators,
        "sites": sites,
    })
}

/// Deadlocks, each as the steps of its cycle.
#[must_use]
pub fn deadlocks(overview: &Overview) -> Value {
    let step = |step: &WaitsFor| json!({"owner": step.owner, "path": step.path, "node": step.node, "waits_for": step.waits_for});
    let circle = |circle: &Vec<WaitsFor>| -> Value { circle.iter().map(step).collect() };
    overview.deadlocks().iter().map(circle).collect()
}

/// Unique key of a sight: one path may have several.
#[must_use]
pub fn key(sight: &RecipeAt) -> String {
    format!("{} {}", recipe(&sight.what), sight.path)
}

fn recipe(what: &Recipe) -> &'static str {
    match what {
        Recipe::Line(line) => match line.kind {
            LineKind::Lock => "lock",
            LineKind::SimpleLock => "simple_lock",
            LineKind::RwLock => "rwlock",
            LineKind::Semaphore => "semaphore",
            LineKind::Election => "election",
            _ => "line",
        },
        Recipe::Barrier { .. } => "barrier",
        Recipe::DoubleBarrier(_) => "double_barrier",
        Recipe::Queue(_) => "queue",
        Recipe::Tasks { .. } => "tasks",
        Recipe::Transaction(_) => "transaction",
        _ => "unknown",
    }
}
