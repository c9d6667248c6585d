//! An operator who deletes directories.

use bellwether_sim::{Plan, recipes};

#[test]
fn recipes_are_right_when_an_operator_deletes_directories() {
    for (name, run) in recipes::ALL {
        let verdict = run(&Plan::wiped(51));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}
