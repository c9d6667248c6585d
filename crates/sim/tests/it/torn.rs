//! Connections that break all the time, and servers that stall: writes arrive behind their retries.

use bellwether_sim::{Plan, recipes};

#[test]
fn recipes_are_right_when_writes_arrive_late() {
    for (name, run) in recipes::ALL {
        let verdict = run(&Plan::torn(100));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}
