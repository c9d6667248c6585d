//! Connections that break all the time, and servers that stall: writes arrive behind their retries.

use bellwether_sim::mistakes::Mistake;
use bellwether_sim::{Plan, recipes};

#[test]
fn recipes_are_right_when_writes_arrive_late() {
    for (name, run) in recipes::ALL {
        let verdict = run(&Plan::torn(100));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}

/// Each of them was in the library until these plans were run with every recipe.
#[test]
fn recipes_that_do_not_expect_late_writes_are_found() {
    for name in [
        "look-once",
        "forget-receipt",
        "delete-by-path",
        "leave-stragglers",
    ] {
        let mistake = Mistake::find(name).unwrap();
        assert!(mistake.first_seed(50).unwrap().is_some(), "{name}");
    }
}
