//! Runs are repeatable and correct, and find bugs.

#![expect(clippy::unwrap_used, reason = "in tests")]

mod embedded;
mod order;
mod overload;
mod seeds;
mod stalls;
mod torn;
mod verdicts;
mod wiped;

use std::collections::BTreeSet;

use bellwether_sim::mistakes::{self, Mistake, Workspace};
use bellwether_sim::{Plan, recipes};

#[test]
fn same_seed_is_the_same_run_event_for_event() {
    for (name, run) in recipes::ALL {
        for mut plan in [Plan::of(1), Plan::torn(1)] {
            plan.with_trace = true;
            let (one, other) = (run(&plan), run(&plan));
            let mut events = one.trace.iter().zip(&other.trace);
            assert_eq!(events.find(|(one, other)| one != other), None, "{name}");
            assert_eq!(one.sum, other.sum, "{name}");
        }
    }
}

#[test]
fn every_mistake_is_in_the_table_of_the_document() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proof.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("## Deliberate mistakes").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut listed: Vec<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    let mut known: Vec<&str> = mistakes::ALL.iter().map(|mistake| mistake.name).collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}

#[test]
fn recipes_are_right_on_simulated_machines() {
    for (name, run) in recipes::ALL {
        // One seed each: `./test` runs many, with an optimized build.
        let verdict = run(&Plan::of(100));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}

#[test]
fn each_mistake_has_a_name_of_its_own() {
    let all = mistakes::ALL.iter().chain(mistakes::HARMLESS);
    for mistake in all {
        let found = Mistake::find(mistake.name).unwrap();
        assert_eq!(found.recipe, mistake.recipe, "{}", mistake.name);
        assert!(recipes::find(mistake.recipe).is_some(), "{}", mistake.name);
    }
}

#[test]
fn every_patch_fits_the_sources_and_is_in_the_table() {
    let workspace = Workspace::default();
    if let Err(error) = workspace.changes() {
        panic!("{error:#}");
    }
    let patches = workspace.patches().unwrap();
    let patches: BTreeSet<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
    let made = mistakes::ALL.iter().map(|mistake| mistake.patch);
    assert_eq!(patches, made.collect());
}
