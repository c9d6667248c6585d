//! Runs on the embedded server: repeatable and correct.

use bellwether_sim::{Plan, recipes};

#[test]
fn same_seed_is_the_same_run_on_the_embedded_server() {
    for (name, run) in recipes::ALL {
        let mut plan = Plan::embedded(1);
        plan.with_trace = true;
        let (one, other) = (run(&plan), run(&plan));
        let mut events = one.trace.iter().zip(&other.trace);
        assert_eq!(events.find(|(one, other)| one != other), None, "{name}");
        assert_eq!(one.sum, other.sum, "{name}");
    }
}

#[test]
fn recipes_are_right_on_the_embedded_server() {
    for (name, run) in recipes::ALL {
        let verdict = run(&Plan::embedded(100));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}
