//! An operator who deletes directories.

use bellwether_sim::mistakes::Mistake;
use bellwether_sim::{Plan, recipes};

#[test]
fn recipes_are_right_when_an_operator_deletes_directories() {
    for (name, run) in recipes::ALL {
        let verdict = run(&Plan::wiped(51));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}

/// The library made this mistake until these plans were run.
#[test]
fn lost_hold_that_hides_other_nodes_is_found() {
    let mistake = Mistake::find("trust-lost-hold").unwrap();
    assert!(mistake.first_seed(100).unwrap().is_some());
}
