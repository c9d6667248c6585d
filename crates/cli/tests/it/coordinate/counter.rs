//! `bellwether counter`.

use serde_json::json;

use crate::support::bellwether::assert_code;
use crate::support::servers::Servers;

on_local_and_apache! {
    counter_adds_and_tells,
    counter_is_set_and_compared,
}

fn counter_adds_and_tells(servers: &Servers) {
    assert_eq!(servers.done(&["counter", "get", "n"]), "0\n");
    assert_eq!(servers.done(&["counter", "add", "n"]), "1\n");
    assert_eq!(servers.done(&["counter", "add", "n", "41"]), "42\n");
    assert_eq!(servers.done(&["counter", "add", "n", "-2"]), "40\n");
    // A sum that does not exist is an answer, not a failure.
    let most = i64::MAX.to_string();
    assert_code(&servers.run(&["counter", "add", "n", &most]), 1);
    let value = servers.object(&["counter", "get", "n"]);
    assert_eq!(value, json!({"path": "/n", "value": 40}));
}

fn counter_is_set_and_compared(servers: &Servers) {
    assert_eq!(servers.done(&["counter", "set", "n", "5"]), "5\n");
    assert_eq!(servers.done(&["counter", "set", "n", "-3"]), "-3\n");
    let other = servers.run(&["counter", "set", "n", "7", "--expect", "5"]);
    assert_code(&other, 1);
    assert_eq!(servers.done(&["counter", "get", "n"]), "-3\n");
    let set = ["counter", "set", "n", "7", "--expect", "-3"];
    assert_eq!(servers.object(&set)["value"], 7);
    assert_eq!(servers.done(&["counter", "add", "n"]), "8\n");
}
