//! More requests in flight than a client may have.

use bellwether_sim::{Plan, recipes};

#[test]
fn recipes_are_right_when_a_client_has_too_many_requests() {
    for (name, run) in recipes::ALL {
        let verdict = run(&Plan::overloaded(100));
        assert_eq!(verdict.violation, None, "{name}");
        assert!(verdict.rounds > 0, "{name}");
    }
}
