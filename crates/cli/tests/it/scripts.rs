//! The recipes for scripts: `barrier`, `queue`, `tasks`, `group`, `name`, `config` and `counter`.

use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bellwether::{Running, assert_code, bellwether, text, until};

on_both_engines! {
    barrier_holds_up_until_it_is_lifted,
    barrier_wait_ends_in_time,
    counter_adds_and_tells,
    config_is_set_compared_and_edited,
    config_watch_tells_every_value,
    config_folder_goes_out_and_in_as_a_whole,
    group_members_are_listed_while_they_stay,
    group_watch_tells_who_comes_and_goes,
    names_are_borne_or_stay,
    items_come_out_as_they_went_in,
    queue_command_that_succeeds_acknowledges_and_one_that_fails_gives_back,
    items_that_fail_too_often_are_dead_letters,
    held_item_is_acknowledged_by_another_command_or_given_back,
    urgent_and_delayed_items_come_in_their_order,
    queue_that_is_empty_is_124,
    claim_that_is_lost_stops_the_command,
    tasks_are_done_once_each,
    tasks_that_fail_are_set_aside_and_retried,
}

/// `bellwether GROUP VERB --connect ADDRESS …`.
fn command(address: &str, arguments: &[&str]) -> Command {
    let mut command = bellwether();
    let (verb, rest) = arguments.split_at(2);
    command.args(verb).args(["--connect", address]).args(rest);
    command
}

fn run(address: &str, arguments: &[&str]) -> Output {
    command(address, arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn done(address: &str, arguments: &[&str]) -> String {
    let output = run(address, arguments);
    assert_code(&output, 0);
    text(&output.stdout)
}

#[track_caller]
fn object(address: &str, arguments: &[&str]) -> Value {
    let output = run(address, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// A command that stays, with an input that can be ended.
fn staying(address: &str, arguments: &[&str]) -> Running {
    Running::start_with(command(address, arguments).stdin(Stdio::piped()))
}

fn barrier_holds_up_until_it_is_lifted(address: &str) {
    assert_eq!(done(address, &["barrier", "wait", "gate"]), "");
    let set = object(address, &["barrier", "set", "gate", "-m", "why"]);
    assert_eq!(set, json!({"path": "/gate", "changed": true}));
    assert_eq!(
        object(address, &["barrier", "set", "gate"])["changed"],
        false
    );
    let mut waiter = staying(address, &["barrier", "wait", "gate"]);
    let told = waiter.error_line().unwrap();
    assert!(
        told.contains("waiting at /gate: set by ") && told.contains("why"),
        "{told}"
    );
    assert_eq!(
        object(address, &["barrier", "lift", "gate"])["changed"],
        true
    );
    assert_eq!(waiter.code(), Some(0));
    assert_eq!(
        object(address, &["barrier", "lift", "gate"])["changed"],
        false
    );
}

fn barrier_wait_ends_in_time(address: &str) {
    done(address, &["barrier", "set", "gate"]);
    let wait = ["barrier", "wait", "gate", "--wait", "50ms"];
    assert_code(&run(address, &wait), 124);
    assert_code(&run(address, &[&wait[..], &["-E", "7"]].concat()), 7);
}

fn counter_adds_and_tells(address: &str) {
    assert_eq!(done(address, &["counter", "get", "n"]), "0\n");
    assert_eq!(done(address, &["counter", "add", "n"]), "1\n");
    assert_eq!(done(address, &["counter", "add", "n", "41"]), "42\n");
    assert_eq!(done(address, &["counter", "add", "n", "-2"]), "40\n");
    let value = object(address, &["counter", "get", "n"]);
    assert_eq!(value, json!({"path": "/n", "value": 40}));
}

fn config_is_set_compared_and_edited(address: &str) {
    assert_code(&run(address, &["config", "get", "app/limits"]), 1);
    done(address, &["config", "set", "app/limits", "one"]);
    assert_eq!(done(address, &["config", "get", "app/limits"]), "one");
    let version = object(address, &["config", "get", "app/limits"])["version"].to_string();
    let set = ["config", "set", "app/limits", "two", "--version", &version];
    done(address, &set);
    assert_code(&run(address, &set), 1);
    let edit = |editor: &str| {
        let mut command = command(address, &["config", "edit", "app/limits"]);
        command.env_remove("VISUAL").env("EDITOR", editor);
        command.output().unwrap()
    };
    assert_code(&edit("sed -i s/two/three/"), 0);
    assert_eq!(done(address, &["config", "get", "app/limits"]), "three");
    let output = edit("false");
    assert_code(&output, 1);
    let said = text(&output.stderr);
    let (_, kept) = said.split_once("the text is kept in ").unwrap();
    assert_eq!(std::fs::read_to_string(kept.trim()).unwrap(), "three");
    std::fs::remove_file(kept.trim()).unwrap();
}

fn config_watch_tells_every_value(address: &str) {
    let mut watch = staying(address, &["config", "watch", "limits", "--json", "-n", "3"]);
    let mut data =
        || serde_json::from_str::<Value>(&watch.line().unwrap()).unwrap()["data"].clone();
    assert_eq!(data(), Value::Null);
    for value in ["1", "2"] {
        done(address, &["config", "set", "limits", value]);
        assert_eq!(data(), json!({"text": value}));
    }
    assert_eq!(watch.code(), Some(0));
}

fn config_folder_goes_out_and_in_as_a_whole(address: &str) {
    let import = |text: &str, options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.json");
        std::fs::write(&file, text).unwrap();
        let arguments = ["config", "import", "db", file.to_str().unwrap()];
        run(address, &[&arguments[..], options].concat())
    };
    let values = r#"{"host": "db2", "key": {"base64": "/wA="}}"#;
    assert_code(&import(values, &[]), 0);
    let exported = done(address, &["config", "export", "db"]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported, serde_json::from_str::<Value>(values).unwrap());
    assert_code(&import(r#"{"port": "5433"}"#, &["--merge"]), 0);
    assert_eq!(done(address, &["config", "get", "db/host"]), "db2");
    assert_code(&import(r#"{"port": "5434"}"#, &[]), 0);
    assert_eq!(
        done(address, &["config", "export", "db"]),
        "{\n  \"port\": \"5434\"\n}\n"
    );
    assert_code(&import("[1]", &[]), 2);
}

fn group_members_are_listed_while_they_stay(address: &str) {
    let mut first = staying(
        address,
        &["group", "join", "workers", "idle", "--name", "one"],
    );
    assert_eq!(first.line().as_deref(), Some("one"));
    let mut second = staying(address, &["group", "join", "workers", "--json"]);
    let name: Value = serde_json::from_str(&second.line().unwrap()).unwrap();
    let listed = object(address, &["group", "ls", "workers"]);
    assert_eq!(listed["members"].as_array().unwrap().len(), 2);
    assert!(done(address, &["group", "ls", "workers"]).contains("one \"idle\"\n"));
    assert_code(
        &run(address, &["group", "join", "workers", "--name", "one"]),
        1,
    );
    first.end_input();
    assert_eq!(first.code(), Some(0));
    second.signal(Signal::TERM);
    assert_eq!(second.code(), Some(143));
    assert!(name["name"].is_string());
    assert_eq!(done(address, &["group", "ls", "workers"]), "");
}

fn group_watch_tells_who_comes_and_goes(address: &str) {
    let mut watch = staying(address, &["group", "watch", "workers"]);
    let mut member = staying(
        address,
        &["group", "join", "workers", "idle", "--name", "one"],
    );
    assert_eq!(watch.line().as_deref(), Some("joined  one \"idle\""));
    assert_eq!(member.line().as_deref(), Some("one"));
    member.end_input();
    assert_eq!(watch.line().as_deref(), Some("left    one"));
}

fn names_are_borne_or_stay(address: &str) {
    assert_code(&run(address, &["name", "resolve", "names", "db"]), 1);
    let mut bearer = staying(address, &["name", "register", "names", "db", "10.0.0.7"]);
    assert_eq!(bearer.line().as_deref(), Some("db"));
    assert_eq!(
        done(address, &["name", "resolve", "names", "db"]),
        "10.0.0.7"
    );
    let lasting = ["name", "register", "--lasting", "names", "depot", "x"];
    done(address, &lasting);
    assert_code(&run(address, &lasting), 1);
    assert_eq!(
        done(address, &["name", "ls", "names"]),
        "db \"10.0.0.7\"\ndepot \"x\"\n"
    );
    bearer.end_input();
    assert_eq!(bearer.code(), Some(0));
    assert_eq!(done(address, &["name", "ls", "names"]), "depot \"x\"\n");
}

fn items_come_out_as_they_went_in(address: &str) {
    for item in ["one", "two"] {
        done(address, &["queue", "put", "q", item]);
    }
    assert_eq!(done(address, &["queue", "peek", "q"]), "one");
    let items = object(address, &["queue", "ls", "q"]);
    let [first, second] = &items["items"].as_array().unwrap()[..] else {
        panic!("{items}");
    };
    assert_eq!(
        (&first["bytes"], &second["attempts"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(done(address, &["queue", "take", "q"]), "one");
    let taken = object(address, &["queue", "take", "q"]);
    assert_eq!(
        (&taken["id"], &taken["data"]),
        (&second["id"], &json!({"text": "two"}))
    );
    assert_eq!(done(address, &["queue", "ls", "q"]), "");
}

fn queue_command_that_succeeds_acknowledges_and_one_that_fails_gives_back(address: &str) {
    done(address, &["queue", "put", "q", "payload"]);
    let take = |script: &str| run(address, &["queue", "take", "q", "--", "sh", "-c", script]);
    let output = take("exit 9");
    assert_code(&output, 9);
    let output =
        take("cat; echo \" $BELLWETHER_ATTEMPTS $BELLWETHER_PATH\"; test $BELLWETHER_TOKEN -gt 0");
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said == "payload 2 /q\n", "{said}");
    assert_eq!(done(address, &["queue", "ls", "q"]), "");
    assert_code(
        &run(address, &["queue", "take", "--try", "q", "--", "true"]),
        124,
    );
}

fn items_that_fail_too_often_are_dead_letters(address: &str) {
    done(address, &["queue", "put", "q", "poison"]);
    let take = ["queue", "take", "q", "--attempts", "2", "--", "false"];
    for _ in 0..2 {
        assert_code(&run(address, &take), 1);
    }
    let dead = object(address, &["queue", "dead", "q"]);
    let letter = &dead["letters"][0];
    assert_eq!(letter["reason"], "the command ended with 1");
    let id = letter["id"].as_str().unwrap();
    assert!(done(address, &["queue", "dead", "q"]).starts_with(id));
    assert_code(
        &run(address, &["queue", "dead", "q", "--revive", "nothing"]),
        1,
    );
    done(address, &["queue", "dead", "q", "--revive", id]);
    assert_eq!(done(address, &["queue", "take", "q"]), "poison");
    assert_eq!(
        object(address, &["queue", "dead", "q"])["letters"],
        json!([])
    );
}

fn held_item_is_acknowledged_by_another_command_or_given_back(address: &str) {
    done(address, &["queue", "put", "q", "x"]);
    let held = || {
        let mut holder = staying(address, &["queue", "take", "--hold", "q"]);
        let item: Value = serde_json::from_str(&holder.line().unwrap()).unwrap();
        (holder, item)
    };
    let (mut holder, item) = held();
    let items = object(address, &["queue", "ls", "q"]);
    assert_eq!(items["items"][0]["claim"]["token"], item["token"]);
    holder.end_input();
    assert_eq!(holder.code(), Some(1));
    let (mut holder, again) = held();
    assert_eq!((&again["id"], &again["attempts"]), (&item["id"], &json!(2)));
    let id = item["id"].as_str().unwrap();
    let (old, new) = (item["token"].to_string(), again["token"].to_string());
    let ack = |token: &str| run(address, &["queue", "ack", "q", id, "--token", token]);
    assert_code(&ack(&old), 1);
    assert_code(&ack(&new), 0);
    assert_eq!(holder.code(), Some(0));
    assert_eq!(done(address, &["queue", "ls", "q"]), "");
}

fn urgent_and_delayed_items_come_in_their_order(address: &str) {
    for (priority, item) in [("7", "later"), ("3", "sooner")] {
        done(
            address,
            &["queue", "put", "p", item, "--priority", priority],
        );
    }
    let take = ["queue", "take", "p", "--order", "priority"];
    assert_eq!(done(address, &take), "sooner");
    assert_eq!(done(address, &take), "later");
    done(
        address,
        &["queue", "put", "d", "much later", "--delay", "1h"],
    );
    done(address, &["queue", "put", "d", "now", "--delay", "1ms"]);
    let take = ["queue", "take", "d", "--order", "due"];
    assert_eq!(done(address, &take), "now");
    assert_code(&run(address, &[&take[..], &["--try"]].concat()), 124);
}

fn queue_that_is_empty_is_124(address: &str) {
    assert_code(&run(address, &["queue", "peek", "q"]), 1);
    for options in [&["--try"][..], &["--wait", "50ms"]] {
        let take = [&["queue", "take", "q"][..], options].concat();
        assert_code(&run(address, &take), 124);
        assert_code(&run(address, &[&take[..], &["--", "true"]].concat()), 124);
    }
}

fn claim_that_is_lost_stops_the_command(address: &str) {
    done(address, &["queue", "put", "q", "x"]);
    let script = "echo working; exec tail -f /dev/null";
    let mut worker = Running::start(&mut command(
        address,
        &[
            "queue", "take", "q", "--grace", "100ms", "--", "sh", "-c", script,
        ],
    ));
    assert_eq!(worker.line().as_deref(), Some("working"));
    let node = text(
        &bellwether()
            .args(["ls", "-c", address, "q/claims"])
            .output()
            .unwrap()
            .stdout,
    );
    let claim = format!("q/claims/{}", node.trim());
    assert_code(
        &bellwether()
            .args(["rm", "-c", address, &claim])
            .output()
            .unwrap(),
        0,
    );
    assert_eq!(worker.code(), Some(123));
    assert_eq!(done(address, &["queue", "take", "q"]), "x");
}

fn tasks_are_done_once_each(address: &str) {
    let added = object(
        address,
        &["tasks", "add", "t", "a", "b", "c", "--data", "what"],
    );
    assert_eq!(added["added"], json!(["a", "b", "c"]));
    assert_code(&run(address, &["tasks", "status", "t"]), 1);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = format!("echo \"$BELLWETHER_TASK $(cat)\" >> {}", log.display());
    let work = ["tasks", "run", "t", "--", "sh", "-c", &script];
    let mut workers = [(); 2].map(|()| Running::start(&mut command(address, &work)));
    for worker in &mut workers {
        assert_eq!(worker.code(), Some(0), "{:?}", worker.errors());
    }
    let log = std::fs::read_to_string(log).unwrap();
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a what", "b what", "c what"]);
    let again = object(address, &["tasks", "add", "t", "a"]);
    assert_eq!(again["added"], json!([]));
    assert_eq!(
        done(address, &["tasks", "status", "t"]),
        "0 open, 0 running, 3 done, 0 failed\n"
    );
}

fn tasks_that_fail_are_set_aside_and_retried(address: &str) {
    done(address, &["tasks", "add", "t", "good", "bad"]);
    let script = "test $BELLWETHER_TASK = good";
    let work = [
        "tasks",
        "run",
        "t",
        "--attempts",
        "2",
        "--",
        "sh",
        "-c",
        script,
    ];
    assert_code(&run(address, &work), 1);
    let status = object(address, &["tasks", "status", "t"]);
    assert_eq!(
        (&status["done"], &status["failed"][0]["id"]),
        (&json!(1), &json!("bad"))
    );
    assert_eq!(status["failed"][0]["attempts"], 2);
    assert_code(
        &run(address, &["tasks", "status", "t", "--retry", "good"]),
        1,
    );
    let retried = object(address, &["tasks", "status", "t", "--retry", "bad"]);
    assert_eq!(
        (&retried["open"], &retried["failed"]),
        (&json!(1), &json!([]))
    );
    assert_code(&run(address, &["tasks", "run", "t", "--", "true"]), 0);
    // One that is interrupted is given back.
    done(address, &["tasks", "add", "t", "long"]);
    let mut worker = Running::start(&mut command(
        address,
        &[
            "tasks",
            "run",
            "t",
            "--",
            "sh",
            "-c",
            "echo in; exec tail -f /dev/null",
        ],
    ));
    assert_eq!(worker.line().as_deref(), Some("in"));
    worker.signal(Signal::TERM);
    assert_eq!(worker.code(), Some(143));
    until("it is open again", || {
        object(address, &["tasks", "status", "t"])["open"] == json!(1)
    });
}
