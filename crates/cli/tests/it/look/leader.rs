//! `bellwether leader`.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::{Running, assert_code, text, user_and_host};
use crate::support::servers::{Servers, json};

on_local_and_apache! {
    leader_is_printed_with_its_value,
    leaders_are_followed_as_they_change,
    holder_of_a_lock_is_no_leader,
    leader_without_a_value_is_no_answer,
}

fn candidate(servers: &Servers, value: &str) -> Running {
    let mut command = servers.bellwether();
    command.args(["elect", "e", "--value", value, "--", "sh", "-c"]);
    Running::start(command.arg("echo leads; exec tail -f /dev/null"))
}

fn leader_is_printed_with_its_value(servers: &Servers) {
    let nobody = servers.run(&["leader", "e"]);
    assert_code(&nobody, 1);
    assert!(text(&nobody.stderr).contains("there is no leader at /e"));
    let mut leader = candidate(servers, "10.0.0.7:8080");
    assert_eq!(leader.line().as_deref(), Some("leads"));
    let value = servers.run(&["leader", "--value", "e"]);
    assert_eq!(text(&value.stdout), "10.0.0.7:8080\n");
    let shown = text(&servers.run(&["leader", "e"]).stdout);
    let who = format!(
        "{} pid {} sh (10.0.0.7:8080), token ",
        user_and_host(),
        leader.id()
    );
    assert!(shown.starts_with(&who), "{shown}");
    let object = json(&servers.run(&["leader", "--json", "e"]));
    assert_eq!(object["value"], "10.0.0.7:8080");
    assert_eq!(object["who"]["pid"], leader.id().as_raw_pid());
    assert!(object["token"].is_i64(), "{object}");
}

fn holder_of_a_lock_is_no_leader(servers: &Servers) {
    let mut holder = servers.staying(&["lock", "x", "--hold"]);
    assert!(holder.line().is_some());
    let leader = servers.run(&["leader", "x"]);
    assert_code(&leader, 1);
    let told = text(&leader.stderr);
    assert!(told.contains("there is no leader at /x"), "{told}");
    holder.end_input();
    assert_eq!(holder.code(), Some(0));
}

fn leader_without_a_value_is_no_answer(servers: &Servers) {
    let script = "echo leads; exec tail -f /dev/null";
    let mut leader =
        Running::start(&mut servers.command(&["elect", "e", "--", "sh", "-c", script]));
    assert_eq!(leader.line().as_deref(), Some("leads"));
    let value = servers.run(&["leader", "--value", "e"]);
    assert_code(&value, 1);
    assert_eq!(text(&value.stdout), "");
    let told = text(&value.stderr);
    assert!(told.contains("the leader at /e has no value"), "{told}");
    assert_code(&servers.run(&["leader", "e"]), 0);
}

fn leaders_are_followed_as_they_change(servers: &Servers) {
    let mut watch = servers.bellwether();
    let mut watch = Running::start(watch.args(["leader", "--watch", "--json", "e"]));
    let mut next = || -> Value {
        let object: Value = serde_json::from_str(&watch.line().unwrap()).unwrap();
        object["value"].clone()
    };
    assert_eq!(next(), Value::Null);
    let first = candidate(servers, "one");
    assert_eq!(next(), "one");
    let mut second = candidate(servers, "two");
    let waits = second.error_line().unwrap();
    assert!(waits.contains("waiting for /e"), "{waits}");
    first.signal(Signal::TERM);
    assert_eq!(next(), "two");
    second.signal(Signal::TERM);
    assert_eq!(next(), Value::Null);
    watch.signal(Signal::INT);
    assert_eq!(watch.code(), Some(130));
}
