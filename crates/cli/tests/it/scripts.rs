//! The recipes for scripts: `barrier`, `queue`, `tasks`, `group`, `name`, `config` and `counter`.

use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bellwether::{Running, apache, assert_code, text, until};
use crate::line::Line;
use crate::servers::Servers;

on_local_and_apache! {
    barrier_holds_up_until_it_is_lifted,
    barrier_wait_ends_in_time,
    counter_adds_and_tells,
    config_is_set_and_compared,
    config_watch_tells_every_value,
    config_folder_goes_out_and_in_as_a_whole,
    group_members_are_listed_while_they_stay,
    group_watch_tells_who_comes_and_goes,
    names_are_borne_or_stay,
    items_come_out_as_they_went_in,
    queue_command_that_succeeds_acknowledges_and_one_that_fails_gives_back,
    items_that_fail_too_often_are_dead_letters,
    held_item_is_acknowledged_by_another_command_or_given_back,
    holder_whose_input_ends_with_the_acknowledgement_has_succeeded,
    item_that_nobody_reads_is_given_back,
    urgent_and_delayed_items_come_in_their_order,
    queue_that_is_empty_is_124,
    claim_that_is_lost_stops_the_command,
    tasks_are_done_once_each,
    tasks_that_fail_are_set_aside_and_retried,
    worker_that_is_told_to_end_begins_no_other_task,
}

fn command(servers: &Servers, arguments: &[&str]) -> Command {
    let mut command = servers.bellwether();
    command.args(arguments);
    command
}

fn run(servers: &Servers, arguments: &[&str]) -> Output {
    command(servers, arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn done(servers: &Servers, arguments: &[&str]) -> String {
    let output = run(servers, arguments);
    assert_code(&output, 0);
    text(&output.stdout)
}

#[track_caller]
fn object(servers: &Servers, arguments: &[&str]) -> Value {
    let output = run(servers, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// A command that stays, with an input that can be ended.
fn staying(servers: &Servers, arguments: &[&str]) -> Running {
    Running::start_with(command(servers, arguments).stdin(Stdio::piped()))
}

fn barrier_holds_up_until_it_is_lifted(servers: &Servers) {
    assert_eq!(done(servers, &["barrier", "wait", "gate"]), "");
    let set = object(servers, &["barrier", "set", "gate", "-m", "why"]);
    assert_eq!(set, json!({"path": "/gate", "changed": true}));
    assert_eq!(
        object(servers, &["barrier", "set", "gate"])["changed"],
        false
    );
    let mut waiter = staying(servers, &["barrier", "wait", "gate"]);
    let told = waiter.error_line().unwrap();
    assert!(
        told.contains("waiting at /gate: set by ") && told.contains("why"),
        "{told}"
    );
    assert_eq!(
        object(servers, &["barrier", "lift", "gate"])["changed"],
        true
    );
    assert_eq!(waiter.code(), Some(0));
    assert_eq!(
        object(servers, &["barrier", "lift", "gate"])["changed"],
        false
    );
}

fn barrier_wait_ends_in_time(servers: &Servers) {
    done(servers, &["barrier", "set", "gate"]);
    let wait = ["barrier", "wait", "gate", "--wait", "50ms"];
    assert_code(&run(servers, &wait), 124);
    assert_code(&run(servers, &[&wait[..], &["-E", "7"]].concat()), 7);
}

fn counter_adds_and_tells(servers: &Servers) {
    assert_eq!(done(servers, &["counter", "get", "n"]), "0\n");
    assert_eq!(done(servers, &["counter", "add", "n"]), "1\n");
    assert_eq!(done(servers, &["counter", "add", "n", "41"]), "42\n");
    assert_eq!(done(servers, &["counter", "add", "n", "-2"]), "40\n");
    let value = object(servers, &["counter", "get", "n"]);
    assert_eq!(value, json!({"path": "/n", "value": 40}));
}

fn config_is_set_and_compared(servers: &Servers) {
    assert_code(&run(servers, &["config", "get", "app/limits"]), 1);
    done(servers, &["config", "set", "app/limits", "one"]);
    assert_eq!(done(servers, &["config", "get", "app/limits"]), "one");
    let version = object(servers, &["config", "get", "app/limits"])["version"].to_string();
    let set = ["config", "set", "app/limits", "two", "--version", &version];
    done(servers, &set);
    assert_code(&run(servers, &set), 1);
}

fn config_watch_tells_every_value(servers: &Servers) {
    let mut watch = staying(servers, &["config", "watch", "limits", "--json", "-n", "3"]);
    let mut data =
        || serde_json::from_str::<Value>(&watch.line().unwrap()).unwrap()["data"].clone();
    assert_eq!(data(), Value::Null);
    for value in ["1", "2"] {
        done(servers, &["config", "set", "limits", value]);
        assert_eq!(data(), json!({"text": value}));
    }
    assert_eq!(watch.code(), Some(0));
}

fn config_folder_goes_out_and_in_as_a_whole(servers: &Servers) {
    let import = |text: &str, options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.json");
        std::fs::write(&file, text).unwrap();
        let arguments = ["config", "import", "db", file.to_str().unwrap()];
        run(servers, &[&arguments[..], options].concat())
    };
    let values = r#"{"host": "db2", "key": {"base64": "/wA="}}"#;
    assert_code(&import(values, &[]), 0);
    let exported = done(servers, &["config", "export", "db"]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported, serde_json::from_str::<Value>(values).unwrap());
    assert_code(&import(r#"{"port": "5433"}"#, &["--merge"]), 0);
    assert_eq!(done(servers, &["config", "get", "db/host"]), "db2");
    assert_code(&import(r#"{"port": "5434"}"#, &[]), 0);
    assert_eq!(
        done(servers, &["config", "export", "db"]),
        "{\n  \"port\": \"5434\"\n}\n"
    );
    assert_code(&import("[1]", &[]), 2);
}

fn group_members_are_listed_while_they_stay(servers: &Servers) {
    let mut first = staying(
        servers,
        &["group", "join", "workers", "idle", "--name", "one"],
    );
    assert_eq!(first.line().as_deref(), Some("one"));
    let mut second = staying(servers, &["group", "join", "workers", "--json"]);
    let name: Value = serde_json::from_str(&second.line().unwrap()).unwrap();
    let listed = object(servers, &["group", "ls", "workers"]);
    assert_eq!(listed["members"].as_array().unwrap().len(), 2);
    assert!(done(servers, &["group", "ls", "workers"]).contains("one \"idle\"\n"));
    assert_code(
        &run(servers, &["group", "join", "workers", "--name", "one"]),
        1,
    );
    first.end_input();
    assert_eq!(first.code(), Some(0));
    second.signal(Signal::TERM);
    assert_eq!(second.code(), Some(143));
    assert!(name["name"].is_string());
    assert_eq!(done(servers, &["group", "ls", "workers"]), "");
}

fn group_watch_tells_who_comes_and_goes(servers: &Servers) {
    let mut watch = staying(servers, &["group", "watch", "workers"]);
    let mut member = staying(
        servers,
        &["group", "join", "workers", "idle", "--name", "one"],
    );
    assert_eq!(watch.line().as_deref(), Some("joined  one \"idle\""));
    assert_eq!(member.line().as_deref(), Some("one"));
    member.end_input();
    assert_eq!(watch.line().as_deref(), Some("left    one"));
}

fn names_are_borne_or_stay(servers: &Servers) {
    assert_code(&run(servers, &["name", "resolve", "names", "db"]), 1);
    let mut bearer = staying(servers, &["name", "register", "names", "db", "10.0.0.7"]);
    assert_eq!(bearer.line().as_deref(), Some("db"));
    assert_eq!(
        done(servers, &["name", "resolve", "names", "db"]),
        "10.0.0.7"
    );
    let lasting = ["name", "register", "--lasting", "names", "depot", "x"];
    done(servers, &lasting);
    assert_code(&run(servers, &lasting), 1);
    assert_eq!(
        done(servers, &["name", "ls", "names"]),
        "db \"10.0.0.7\"\ndepot \"x\"\n"
    );
    bearer.end_input();
    assert_eq!(bearer.code(), Some(0));
    assert_eq!(done(servers, &["name", "ls", "names"]), "depot \"x\"\n");
}

fn items_come_out_as_they_went_in(servers: &Servers) {
    for item in ["one", "two"] {
        done(servers, &["queue", "put", "q", item]);
    }
    assert_eq!(done(servers, &["queue", "peek", "q"]), "one");
    let items = object(servers, &["queue", "ls", "q"]);
    let [first, second] = &items["items"].as_array().unwrap()[..] else {
        panic!("{items}");
    };
    assert_eq!(
        (&first["bytes"], &second["attempts"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(done(servers, &["queue", "take", "q"]), "one");
    let taken = object(servers, &["queue", "take", "q"]);
    assert_eq!(
        (&taken["id"], &taken["data"]),
        (&second["id"], &json!({"text": "two"}))
    );
    assert_eq!(done(servers, &["queue", "ls", "q"]), "");
}

fn queue_command_that_succeeds_acknowledges_and_one_that_fails_gives_back(servers: &Servers) {
    done(servers, &["queue", "put", "q", "payload"]);
    let take = |script: &str| run(servers, &["queue", "take", "q", "--", "sh", "-c", script]);
    let output = take("exit 9");
    assert_code(&output, 9);
    let output =
        take("cat; echo \" $BELLWETHER_ATTEMPTS $BELLWETHER_PATH\"; test $BELLWETHER_TOKEN -gt 0");
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said == "payload 2 /q\n", "{said}");
    assert_eq!(done(servers, &["queue", "ls", "q"]), "");
    assert_code(
        &run(servers, &["queue", "take", "--try", "q", "--", "true"]),
        124,
    );
}

fn items_that_fail_too_often_are_dead_letters(servers: &Servers) {
    done(servers, &["queue", "put", "q", "poison"]);
    let take = ["queue", "take", "q", "--attempts", "2", "--", "false"];
    for _ in 0..2 {
        assert_code(&run(servers, &take), 1);
    }
    let dead = object(servers, &["queue", "dead", "q"]);
    let letter = &dead["letters"][0];
    assert_eq!(letter["reason"], "exited with 1");
    let id = letter["id"].as_str().unwrap();
    assert!(done(servers, &["queue", "dead", "q"]).starts_with(id));
    assert_code(
        &run(servers, &["queue", "dead", "q", "--revive", "nothing"]),
        1,
    );
    done(servers, &["queue", "dead", "q", "--revive", id]);
    assert_eq!(done(servers, &["queue", "take", "q"]), "poison");
    assert_eq!(
        object(servers, &["queue", "dead", "q"])["letters"],
        json!([])
    );
}

fn held_item_is_acknowledged_by_another_command_or_given_back(servers: &Servers) {
    done(servers, &["queue", "put", "q", "x"]);
    let held = || {
        let mut holder = staying(servers, &["queue", "take", "--hold", "q"]);
        let item: Value = serde_json::from_str(&holder.line().unwrap()).unwrap();
        (holder, item)
    };
    let (mut holder, item) = held();
    let items = object(servers, &["queue", "ls", "q"]);
    assert_eq!(items["items"][0]["claim"]["token"], item["token"]);
    holder.end_input();
    assert_eq!(holder.code(), Some(1));
    let (mut holder, again) = held();
    assert_eq!((&again["id"], &again["attempts"]), (&item["id"], &json!(2)));
    let id = item["id"].as_str().unwrap();
    let (old, new) = (item["token"].to_string(), again["token"].to_string());
    let ack = |token: &str| run(servers, &["queue", "ack", "q", id, "--token", token]);
    assert_code(&ack(&old), 1);
    assert_code(&ack(&new), 0);
    assert_eq!(holder.code(), Some(0));
    assert_eq!(done(servers, &["queue", "ls", "q"]), "");
}

fn holder_whose_input_ends_with_the_acknowledgement_has_succeeded(servers: &Servers) {
    // Each may come first.
    for _ in 0..10 {
        done(servers, &["queue", "put", "q", "x"]);
        let mut holder = staying(servers, &["queue", "take", "--hold", "q"]);
        let item: Value = serde_json::from_str(&holder.line().unwrap()).unwrap();
        holder.signal(Signal::STOP);
        done(
            servers,
            &["queue", "ack", "q", item["id"].as_str().unwrap()],
        );
        holder.end_input();
        holder.signal(Signal::CONT);
        assert_eq!(holder.code(), Some(0), "{:?}", holder.errors());
    }
}

fn item_that_nobody_reads_is_given_back(servers: &Servers) {
    done(servers, &["queue", "put", "q", "x"]);
    for options in [&[][..], &["--json"], &["--hold"]] {
        let (reader, unread) = std::io::pipe().unwrap();
        drop(reader);
        let mut take = command(servers, &["queue", "take", "q"]);
        // An input that does not end: only the output says that nobody is there.
        let mut take = take
            .args(options)
            .stdin(Stdio::piped())
            .stdout(unread)
            .spawn()
            .unwrap();
        let input = take.stdin.take();
        assert_eq!(take.wait().unwrap().code(), Some(1), "{options:?}");
        drop(input);
    }
    assert_eq!(done(servers, &["queue", "take", "q"]), "x");
}

fn urgent_and_delayed_items_come_in_their_order(servers: &Servers) {
    for (priority, item) in [("7", "later"), ("3", "sooner")] {
        done(
            servers,
            &["queue", "put", "p", item, "--priority", priority],
        );
    }
    let take = ["queue", "take", "p", "--order", "priority"];
    assert_eq!(done(servers, &take), "sooner");
    assert_eq!(done(servers, &take), "later");
    done(
        servers,
        &["queue", "put", "d", "much later", "--delay", "1h"],
    );
    done(servers, &["queue", "put", "d", "now", "--delay", "1ms"]);
    let take = ["queue", "take", "d", "--order", "due"];
    assert_eq!(done(servers, &take), "now");
    assert_code(&run(servers, &[&take[..], &["--try"]].concat()), 124);
}

fn queue_that_is_empty_is_124(servers: &Servers) {
    assert_code(&run(servers, &["queue", "peek", "q"]), 1);
    for options in [&["--try"][..], &["--wait", "50ms"]] {
        let take = [&["queue", "take", "q"][..], options].concat();
        assert_code(&run(servers, &take), 124);
        assert_code(&run(servers, &[&take[..], &["--", "true"]].concat()), 124);
    }
}

fn claim_that_is_lost_stops_the_command(servers: &Servers) {
    done(servers, &["queue", "put", "q", "x"]);
    let script = "echo working; exec tail -f /dev/null";
    let mut worker = Running::start(&mut command(
        servers,
        &[
            "queue", "take", "q", "--grace", "100ms", "--", "sh", "-c", script,
        ],
    ));
    assert_eq!(worker.line().as_deref(), Some("working"));
    let claim = done(servers, &["ls", "q/claims"]);
    done(servers, &["rm", &format!("q/claims/{}", claim.trim())]);
    assert_eq!(worker.code(), Some(123));
    assert_eq!(done(servers, &["queue", "take", "q"]), "x");
}

fn tasks_are_done_once_each(servers: &Servers) {
    let added = object(
        servers,
        &["tasks", "add", "t", "a", "b", "c", "--data", "what"],
    );
    assert_eq!(added["added"], json!(["a", "b", "c"]));
    assert_code(&run(servers, &["tasks", "status", "t"]), 1);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = format!("echo \"$BELLWETHER_TASK $(cat)\" >> {}", log.display());
    let work = ["tasks", "run", "t", "--", "sh", "-c", &script];
    let mut workers = [(); 2].map(|()| Running::start(&mut command(servers, &work)));
    for worker in &mut workers {
        assert_eq!(worker.code(), Some(0), "{:?}", worker.errors());
    }
    let log = std::fs::read_to_string(log).unwrap();
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a what", "b what", "c what"]);
    let again = object(servers, &["tasks", "add", "t", "a"]);
    assert_eq!(again["added"], json!([]));
    assert_eq!(
        done(servers, &["tasks", "status", "t"]),
        "0 open, 0 running, 3 done, 0 failed\n"
    );
}

fn tasks_that_fail_are_set_aside_and_retried(servers: &Servers) {
    done(servers, &["tasks", "add", "t", "good", "bad"]);
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
    assert_code(&run(servers, &work), 1);
    let status = object(servers, &["tasks", "status", "t"]);
    assert_eq!(
        (&status["done"], &status["failed"][0]["id"]),
        (&json!(1), &json!("bad"))
    );
    assert_eq!(status["failed"][0]["attempts"], 2);
    assert_code(
        &run(servers, &["tasks", "status", "t", "--retry", "good"]),
        1,
    );
    let retried = object(servers, &["tasks", "status", "t", "--retry", "bad"]);
    assert_eq!(
        (&retried["open"], &retried["failed"]),
        (&json!(1), &json!([]))
    );
    assert_code(&run(servers, &["tasks", "run", "t", "--", "true"]), 0);
    // One that is interrupted is given back.
    done(servers, &["tasks", "add", "t", "long"]);
    let mut worker = Running::start(&mut command(
        servers,
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
        object(servers, &["tasks", "status", "t"])["open"] == json!(1)
    });
}

fn worker_that_is_told_to_end_begins_no_other_task(servers: &Servers) {
    for (signal, how, code) in [
        (Signal::TERM, "exit 3", 143),
        (Signal::INT, "exit 0", 130),
        // It may mean something else to the command.
        (Signal::HUP, "exit 0", 0),
    ] {
        done(servers, &["tasks", "add", "t", "a", "b"]);
        let script = format!(
            "test -e begun && exit 0
            >begun; trap 'kill $!; {how}' TERM INT HUP; tail -f /dev/null & echo in; wait"
        );
        let folder = tempfile::tempdir().unwrap();
        let mut worker = command(servers, &["tasks", "run", "t", "--", "sh", "-c", &script]);
        let mut worker = Running::start(worker.current_dir(folder.path()));
        assert_eq!(worker.line().as_deref(), Some("in"));
        worker.signal(signal);
        assert_eq!(worker.code(), Some(code), "{signal:?}");
        let status = object(servers, &["tasks", "status", "t"]);
        let is_left = code != 0;
        assert_eq!(status["open"] != json!(0), is_left, "{signal:?}: {status}");
        done(servers, &["rm", "-r", "--yes", "t"]);
    }
}

#[test]
fn held_item_is_lost_with_its_session() {
    let (_server, address) = apache();
    let servers = Servers::at(&address);
    done(&servers, &["queue", "put", "q", "x"]);
    let mut holder = staying(&servers, &["queue", "take", "--hold", "q"]);
    assert!(holder.line().is_some());
    Line::at(&address, "/q/claims").end_session();
    assert_eq!(holder.code(), Some(123), "{:?}", holder.errors());
}
