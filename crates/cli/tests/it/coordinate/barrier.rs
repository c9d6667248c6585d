//! `bellwether barrier`.

use serde_json::json;

use crate::support::bellwether::assert_code;
use crate::support::servers::Servers;

on_local_and_apache! {
    barrier_holds_up_until_it_is_lifted,
    barrier_wait_ends_in_time,
}

fn barrier_holds_up_until_it_is_lifted(servers: &Servers) {
    assert_eq!(servers.done(&["barrier", "wait", "gate"]), "");
    let set = servers.object(&["barrier", "set", "gate", "-m", "why"]);
    assert_eq!(set, json!({"path": "/gate", "changed": true}));
    assert_eq!(
        servers.object(&["barrier", "set", "gate"])["changed"],
        false
    );
    let mut waiter = servers.staying(&["barrier", "wait", "gate"]);
    let told = waiter.error_line().unwrap();
    assert!(
        told.contains("waiting at /gate: set by ") && told.contains("why"),
        "{told}"
    );
    assert_eq!(
        servers.object(&["barrier", "lift", "gate"])["changed"],
        true
    );
    assert_eq!(waiter.code(), Some(0));
    assert_eq!(
        servers.object(&["barrier", "lift", "gate"])["changed"],
        false
    );
}

fn barrier_wait_ends_in_time(servers: &Servers) {
    servers.done(&["barrier", "set", "gate"]);
    let wait = ["barrier", "wait", "gate", "--wait", "50ms"];
    assert_code(&servers.run(&wait), 124);
    assert_code(&servers.run(&[&wait[..], &["-E", "7"]].concat()), 7);
}
