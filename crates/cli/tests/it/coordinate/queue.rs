//! `bellwether queue`, except `queue work`.

use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::bellwether::{Running, apache, assert_code, text};
use crate::support::line::Line;
use crate::support::servers::Servers;

on_local_and_apache! {
    items_come_out_as_they_went_in,
    queue_command_that_succeeds_acknowledges_and_one_that_fails_gives_back,
    items_that_fail_too_often_are_dead_letters,
    held_item_is_acknowledged_by_another_command_or_given_back,
    holder_whose_input_ends_with_the_acknowledgement_has_succeeded,
    item_that_nobody_reads_is_given_back,
    urgent_and_delayed_items_come_in_their_order,
    revived_items_keep_their_priority_or_due_time,
    t100_consumer_follows_the_order_of_the_queue,
    queue_that_is_empty_is_124,
    claim_that_is_lost_stops_the_command,
}

fn items_come_out_as_they_went_in(servers: &Servers) {
    for item in ["one", "two"] {
        servers.done(&["queue", "put", "q", item]);
    }
    assert_eq!(servers.done(&["queue", "peek", "q"]), "one");
    let items = servers.object(&["queue", "ls", "q"]);
    let [first, second] = &items["items"].as_array().unwrap()[..] else {
        panic!("{items}");
    };
    assert_eq!(
        (&first["bytes"], &second["attempts"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(servers.done(&["queue", "take", "q"]), "one");
    let taken = servers.object(&["queue", "take", "q"]);
    assert_eq!(
        (&taken["id"], &taken["data"]),
        (&second["id"], &json!({"text": "two"}))
    );
    assert_eq!(servers.done(&["queue", "ls", "q"]), "");
}

fn queue_command_that_succeeds_acknowledges_and_one_that_fails_gives_back(servers: &Servers) {
    servers.done(&["queue", "put", "q", "payload"]);
    let take = |script: &str| servers.run(&["queue", "take", "q", "--", "sh", "-c", script]);
    let output = take("exit 9");
    assert_code(&output, 9);
    let output =
        take("cat; echo \" $BELLWETHER_ATTEMPTS $BELLWETHER_PATH\"; test $BELLWETHER_TOKEN -gt 0");
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said == "payload 2 /q\n", "{said}");
    assert_eq!(servers.done(&["queue", "ls", "q"]), "");
    assert_code(
        &servers.run(&["queue", "take", "--try", "q", "--", "true"]),
        124,
    );
}

fn items_that_fail_too_often_are_dead_letters(servers: &Servers) {
    servers.done(&["queue", "put", "q", "poison"]);
    let take = ["queue", "take", "q", "--attempts", "2", "--", "false"];
    for _ in 0..2 {
        assert_code(&servers.run(&take), 1);
    }
    let dead = servers.object(&["queue", "dead", "q"]);
    let letter = &dead["letters"][0];
    assert_eq!(letter["reason"], "exited with 1");
    let id = letter["id"].as_str().unwrap();
    assert!(servers.done(&["queue", "dead", "q"]).starts_with(id));
    assert_code(
        &servers.run(&["queue", "dead", "q", "--retry", "nothing"]),
        1,
    );
    servers.done(&["queue", "dead", "q", "--retry", id]);
    assert_eq!(servers.done(&["queue", "take", "q"]), "poison");
    assert_eq!(
        servers.object(&["queue", "dead", "q"])["letters"],
        json!([])
    );
}

fn held_item_is_acknowledged_by_another_command_or_given_back(servers: &Servers) {
    servers.done(&["queue", "put", "q", "x"]);
    let held = || {
        let mut holder = servers.staying(&["queue", "take", "--hold", "q"]);
        let item: Value = serde_json::from_str(&holder.line().unwrap()).unwrap();
        (holder, item)
    };
    let (mut holder, item) = held();
    let items = servers.object(&["queue", "ls", "q"]);
    assert_eq!(items["items"][0]["claim"]["token"], item["token"]);
    holder.end_input();
    assert_eq!(holder.code(), Some(1));
    let (mut holder, again) = held();
    assert_eq!((&again["id"], &again["attempts"]), (&item["id"], &json!(2)));
    let id = item["id"].as_str().unwrap();
    let (old, new) = (item["token"].to_string(), again["token"].to_string());
    let ack = |token: &str| servers.run(&["queue", "ack", "q", id, "--token", token]);
    assert_code(&ack(&old), 1);
    assert_code(&ack(&new), 0);
    assert_eq!(holder.code(), Some(0));
    assert_eq!(servers.done(&["queue", "ls", "q"]), "");
}

fn holder_whose_input_ends_with_the_acknowledgement_has_succeeded(servers: &Servers) {
    // Either may come first.
    for _ in 0..10 {
        servers.done(&["queue", "put", "q", "x"]);
        let mut holder = servers.staying(&["queue", "take", "--hold", "q"]);
        let item: Value = serde_json::from_str(&holder.line().unwrap()).unwrap();
        holder.signal(Signal::STOP);
        servers.done(&["queue", "ack", "q", item["id"].as_str().unwrap()]);
        holder.end_input();
        holder.signal(Signal::CONT);
        assert_eq!(holder.code(), Some(0), "{:?}", holder.errors());
    }
}

fn item_that_nobody_reads_is_given_back(servers: &Servers) {
    servers.done(&["queue", "put", "q", "x"]);
    for options in [&[][..], &["--json"], &["--hold"]] {
        let (reader, unread) = std::io::pipe().unwrap();
        drop(reader);
        let mut take = servers.command(&["queue", "take", "q"]);
        // The input does not end: only the output shows that the reader is gone.
        let mut take = take
            .args(options)
            .stdin(Stdio::piped())
            .stdout(unread)
            .spawn()
            .unwrap();
        let input = take.stdin.take();
        assert_eq!(take.wait().unwrap().code(), Some(125), "{options:?}");
        drop(input);
    }
    // Closed, or on a disk that is full.
    for out in [">&-", "> /dev/full"] {
        for option in ["", "--json", "--hold"] {
            let take = servers.command(&["queue", "take", "q"]);
            let script = format!("exec \"$0\" \"$@\" {option} {out}");
            let output = through_shell(&take, &script);
            assert_code(&output, 125);
            let said = text(&output.stderr);
            let expected = match out {
                ">&-" => "nothing was taken",
                _ => "given back",
            };
            assert!(said.contains(expected), "{said}");
        }
    }
    let listed = servers.object(&["queue", "ls", "q"]);
    assert_eq!(listed["items"][0]["attempts"], 0);
    assert_eq!(servers.done(&["queue", "take", "q"]), "x");
}

/// Runs a command as `$0` and `$@` of a script.
fn through_shell(command: &Command, script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().unwrap()
}

fn urgent_and_delayed_items_come_in_their_order(servers: &Servers) {
    for (priority, item) in [("7", "later"), ("3", "sooner")] {
        servers.done(&["queue", "put", "p", item, "--priority", priority]);
    }
    let take = ["queue", "take", "p", "--order", "priority"];
    assert_eq!(servers.done(&take), "sooner");
    assert_eq!(servers.done(&take), "later");
    servers.done(&["queue", "put", "d", "much later", "--delay", "1h"]);
    servers.done(&["queue", "put", "d", "now", "--delay", "1ms"]);
    let take = ["queue", "take", "d", "--order", "due"];
    assert_eq!(servers.done(&take), "now");
    assert_code(&servers.run(&[&take[..], &["--try"]].concat()), 124);
}

fn t100_consumer_follows_the_order_of_the_queue(servers: &Servers) {
    for (priority, item) in [("7", "later"), ("3", "sooner"), ("5", "between")] {
        servers.done(&["queue", "put", "p", item, "--priority", priority]);
    }
    assert_eq!(servers.done(&["queue", "peek", "p"]), "sooner");
    assert_eq!(servers.done(&["queue", "take", "p"]), "sooner");
    assert_eq!(
        servers.done(&["queue", "take", "p", "--", "cat"]),
        "between"
    );
    let work = ["queue", "work", "p", "--idle", "1s", "--", "cat"];
    assert_eq!(servers.done(&work), "later");
    servers.done(&["queue", "put", "p", "x", "--priority", "1"]);
    for other in [
        &["queue", "take", "p", "--order", "arrival"][..],
        &["queue", "put", "p", "x"],
        &["queue", "put", "p", "x", "--delay", "1s"],
    ] {
        let output = servers.run(other);
        assert_code(&output, 2);
        let said = text(&output.stderr);
        assert!(said.contains("in the order of priority"), "{said}");
    }
    // Not before it is due.
    servers.done(&["queue", "put", "d", "much later", "--delay", "1h"]);
    assert_code(&servers.run(&["queue", "take", "d", "--try"]), 124);
    assert_code(&servers.run(&["queue", "peek", "d"]), 1);
    servers.done(&["queue", "put", "d", "now"]);
    assert_eq!(servers.done(&["queue", "take", "d"]), "now");
}

fn revived_items_keep_their_priority_or_due_time(servers: &Servers) {
    let due = ["queue", "take", "d", "--order", "due"];
    let urgent = ["queue", "take", "p", "--order", "priority"];
    for take in [due, urgent] {
        let (path, option) = match take[2] {
            "d" => ("d", ["--delay", "1ms"]),
            path => (path, ["--priority", "7"]),
        };
        servers.done(&[&["queue", "put", path, "late"][..], &option].concat());
        let rank = || servers.object(&["queue", "ls", path])["items"][0]["rank"].clone();
        let before = rank();
        assert_ne!(before, 0);
        let failing = [&take[..], &["--attempts", "1", "--", "false"]].concat();
        assert_code(&servers.run(&failing), 1);
        servers.done(&["queue", "dead", path, "--retry", "all"]);
        assert_eq!(rank(), before, "{path}");
    }
    servers.done(&["queue", "put", "p", "sooner", "--priority", "3"]);
    assert_eq!(servers.done(&urgent), "sooner");
    assert_eq!(servers.done(&urgent), "late");
    assert_eq!(servers.done(&due), "late");
}

fn queue_that_is_empty_is_124(servers: &Servers) {
    assert_code(&servers.run(&["queue", "peek", "q"]), 1);
    for options in [&["--try"][..], &["--wait", "50ms"]] {
        let take = [&["queue", "take", "q"][..], options].concat();
        assert_code(&servers.run(&take), 124);
        assert_code(&servers.run(&[&take[..], &["--", "true"]].concat()), 124);
    }
}

fn claim_that_is_lost_stops_the_command(servers: &Servers) {
    servers.done(&["queue", "put", "q", "x"]);
    let script = "echo working; exec tail -f /dev/null";
    let mut worker = Running::start(&mut servers.command(&[
        "queue", "take", "q", "--grace", "100ms", "--", "sh", "-c", script,
    ]));
    assert_eq!(worker.line().as_deref(), Some("working"));
    let claim = servers.done(&["ls", "q/claims"]);
    servers.done(&["rm", &format!("q/claims/{}", claim.trim())]);
    assert_eq!(worker.code(), Some(123));
    assert_eq!(servers.done(&["queue", "take", "q"]), "x");
}

#[test]
fn held_item_is_lost_with_its_session() {
    let (_server, address) = apache();
    let servers = Servers::at(&address);
    servers.done(&["queue", "put", "q", "x"]);
    let mut holder = servers.staying(&["queue", "take", "--hold", "q"]);
    assert!(holder.line().is_some());
    Line::at(&address, "/q/claims").end_session();
    assert_eq!(holder.code(), Some(123), "{:?}", holder.errors());
}
