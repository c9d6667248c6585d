//! Runs are repeatable and correct, and find bugs.

#![expect(clippy::unwrap_used, reason = "in tests")]

mod embedded;
mod order;
mod seeds;
mod stalls;
mod torn;

use bellwether_sim::mistakes::Mistake;
use bellwether_sim::{Plan, recipes, shrink};

#[test]
fn same_seed_is_the_same_run_event_for_event() {
    for (name, run) in recipes::ALL {
        for seed in [1, 2] {
            let mut plan = Plan::of(seed);
            plan.with_trace = true;
            let (one, other) = (run(&plan), run(&plan));
            let first = one
                .trace
                .iter()
                .zip(&other.trace)
                .find(|(one, other)| one != other);
            assert_eq!(first, None, "{name}, seed {seed}");
            assert_eq!(one.sum, other.sum, "{name}, seed {seed}");
        }
    }
}

#[test]
fn recipes_are_right_on_simulated_machines() {
    for (name, run) in recipes::ALL {
        for seed in 100..103 {
            let verdict = run(&Plan::of(seed));
            assert_eq!(verdict.violation, None, "{name}, seed {seed}");
            assert!(verdict.rounds > 0, "{name}, seed {seed}");
        }
    }
}

#[test]
fn mistake_is_found_and_made_small() {
    let mistake = Mistake::find("ignore-expiry").unwrap();
    let run = recipes::find(mistake.recipe).unwrap();
    let (seed, _) = mistake.first_seed(50).unwrap().unwrap();
    let plan = mistake.make(mistake.plan(seed));
    let (small, wrong) = shrink(run, &plan);
    assert_eq!(run(&small).violation, Some(wrong));
    assert!(small.faults.len() < plan.faults.len(), "{small:#?}");
    assert_eq!(
        run(&Plan {
            sabotage: None,
            ..small
        })
        .violation,
        None
    );
}
