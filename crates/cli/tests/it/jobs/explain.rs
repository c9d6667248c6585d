//! `bellwether lock --explain`: what would happen now, and nothing does.

use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text, until};
use crate::support::servers::{Servers, json};

on_local_and_apache! {
    free_lock_would_be_acquired_and_is_not,
    held_lock_would_be_waited_for_as_the_options_say,
    waiters_are_ahead_too,
    readers_would_share_and_a_writer_would_wait,
    permits_are_counted,
    another_recipe_would_refuse,
    crash_is_shown_with_what_would_be_done_about_it,
    lock_of_the_job_around_would_be_refused,
    several_locks_are_explained_together,
}

fn explained(servers: &Servers, arguments: &[&str]) -> Output {
    servers.run(&[&["lock", "--explain"], arguments].concat())
}

/// The last line: what would happen.
fn now(output: &Output) -> String {
    let said = text(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    last.strip_prefix("  now    ").unwrap().to_owned()
}

#[track_caller]
fn assert_would(servers: &Servers, arguments: &[&str], code: i32, says: &str) {
    let output = explained(servers, arguments);
    assert_code(&output, code);
    assert_eq!(now(&output), says, "{arguments:?}");
}

/// A job that holds a lock of some kind.
fn holder(servers: &Servers, arguments: &[&str]) -> Running {
    let script = "echo held; exec tail -f /dev/null";
    let mut command = servers.command(&[&["lock"], arguments].concat());
    let mut holder = Running::start(command.args(["--", "sh", "-c", script]));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

fn free_lock_would_be_acquired_and_is_not(servers: &Servers) {
    let output = explained(servers, &["x", "--", "false"]);
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said.starts_with("/x  free\n  lately "), "{said}");
    assert_eq!(now(&output), "would run at once");
    // Neither the command was run nor the node created.
    assert_code(&servers.run(&["stat", "x"]), 1);
    let seen = json(&explained(servers, &["--json", "x", "--", "false"]));
    assert_eq!(seen["would"], "run");
    assert_eq!(seen["exit_code"], 0);
    let lock = &seen["locks"][0];
    assert_eq!(lock["path"], "/x");
    assert_eq!(lock["ahead"], 0);
    assert_eq!(lock["crash"], Value::Null);
}

fn held_lock_would_be_waited_for_as_the_options_say(servers: &Servers) {
    let _holder = holder(servers, &["x", "-m", "nightly"]);
    for (arguments, code, says) in [
        (
            &["x"][..],
            124,
            "would wait behind 1 holder, without a limit",
        ),
        (
            &["x", "--wait", "10m"],
            124,
            "would wait behind 1 holder, and give up after 10m0s, exit code 124",
        ),
        (
            &["x", "--try", "-E", "7"],
            7,
            "would not wait behind 1 holder, exit code 7",
        ),
    ] {
        assert_would(servers, arguments, code, says);
    }
    let said = text(&explained(servers, &["x"]).stdout);
    assert!(
        said.contains("  holds  ") && said.contains(" sh (nightly), "),
        "{said}"
    );
    let seen = json(&explained(servers, &["--json", "x"]));
    assert_eq!(seen["would"], "wait");
    let holders = &seen["locks"][0]["holders"];
    assert_eq!(holders[0]["who"]["message"], "nightly");
    assert!(holders[0]["since_ms"].is_u64());
}

fn waiters_are_ahead_too(servers: &Servers) {
    let _holder = holder(servers, &["x"]);
    let _waiter = Running::start(&mut servers.command(&["lock", "x", "--", "true"]));
    until("it waits", || {
        let seen = json(&servers.run(&["locks", "--json", "x"]));
        seen["sights"][0]["waiters"].as_array().map(Vec::len) == Some(1)
    });
    let says = "would wait behind 1 holder and 1 waiter, without a limit";
    assert_would(servers, &["x"], 124, says);
    let seen = json(&explained(servers, &["--json", "x"]));
    assert_eq!(seen["locks"][0]["ahead"], 2);
}

fn readers_would_share_and_a_writer_would_wait(servers: &Servers) {
    let _reader = holder(servers, &["--read", "x"]);
    assert_would(
        servers,
        &["--read", "x"],
        0,
        "would run at once, beside 1 holder",
    );
    let says = "would wait behind 1 holder, without a limit";
    assert_would(servers, &["--write", "x"], 124, says);
}

fn permits_are_counted(servers: &Servers) {
    let _holder = holder(servers, &["--of", "3", "x"]);
    let beside = "would run at once, beside 1 holder";
    assert_would(servers, &["--of", "3", "--permits", "2", "x"], 0, beside);
    let says = "would wait behind 1 holder, without a limit";
    assert_would(servers, &["--of", "3", "--permits", "3", "x"], 124, says);
    // The limit on the servers counts.
    assert_code(&servers.run(&["set", "x", "1"]), 0);
    assert_would(servers, &["--of", "3", "x"], 124, says);
    assert_code(&servers.run(&["create", "y", "1"]), 0);
    let says = "would wait until the limit is raised, without a limit";
    assert_would(servers, &["--of", "3", "--permits", "2", "y"], 124, says);
}

fn another_recipe_would_refuse(servers: &Servers) {
    let _holder = holder(servers, &["--of", "3", "x"]);
    let says = "would be refused, exit code 2: in use as a semaphore";
    assert_would(servers, &["x"], 2, says);
    let _lock = holder(servers, &["y"]);
    let says = "would be refused, exit code 2: in use as a lock with the layout of bellwether";
    assert_would(servers, &["--layout", "kazoo", "y"], 2, says);
}

fn crash_is_shown_with_what_would_be_done_about_it(servers: &Servers) {
    let mut crashed = holder(servers, &["x"]);
    crashed.signal(Signal::TERM);
    assert_eq!(crashed.code(), Some(143));
    let output = explained(servers, &["x"]);
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(
        said.contains("did not finish: terminated (SIGTERM)"),
        "{said}"
    );
    assert_eq!(now(&output), "would run at once, and be told of the crash");
    let repair = &["x", "--on-crash", "./repair.sh", "--lock-delay", "10s"][..];
    let says = "would run after 10s, after a repair by: ./repair.sh";
    assert_would(servers, repair, 0, says);
    let refusing = explained(servers, &["--on-crash", "fail", "x"]);
    assert_code(&refusing, 122);
    assert!(now(&refusing).contains("because of the crash, exit code 122"));
    let seen = json(&explained(servers, &["--json", "--on-crash", "fail", "x"]));
    assert_eq!(seen["would"], "refuse");
    assert!(seen["locks"][0]["crash"]["token"].is_i64(), "{seen}");
    // The record is still there.
    let next = servers.run(&["lock", "--on-crash", "fail", "x", "--", "true"]);
    assert_code(&next, 122);
}

fn lock_of_the_job_around_would_be_refused(servers: &Servers) {
    let program = env!("CARGO_BIN_EXE_bellwether");
    let inner = ["--", program, "lock", "--explain", "x"];
    let output = servers.run(&[&["lock", "x"], &inner[..]].concat());
    assert_code(&output, 2);
    assert!(now(&output).contains("a lock of the job around this command"));
}

fn several_locks_are_explained_together(servers: &Servers) {
    let _holder = holder(servers, &["b"]);
    let seen = json(&explained(servers, &["--json", "b", "a", "--", "true"]));
    assert_eq!(seen["exit_code"], 124);
    let would = |place: usize| {
        let lock = &seen["locks"][place];
        (lock["path"].clone(), lock["would"].clone())
    };
    assert_eq!(would(0), ("/a".into(), "run".into()));
    assert_eq!(would(1), ("/b".into(), "wait".into()));
}

#[test]
fn times_of_holds_come_from_the_log_of_the_local_server() {
    let servers = Servers::local();
    let lately = || json(&explained(&servers, &["--json", "x"]))["locks"][0]["lately"].clone();
    assert_eq!(lately()["count"], 0);
    for _ in 0..3 {
        servers.done(&["lock", "x", "--", "true"]);
    }
    let seen = lately();
    assert_eq!(seen["count"], 3);
    assert!(
        seen["median_ms"].as_u64() <= seen["longest_ms"].as_u64(),
        "{seen}"
    );
    let said = text(&explained(&servers, &["x"]).stdout);
    assert!(said.contains("  lately 3 holds since "), "{said}");
}

#[test]
fn times_of_holds_are_not_known_without_a_log() {
    let mut server = bellwether();
    let (_server, addresses) = serve(server.args(["serve", "--listen", "127.0.0.1:0"]));
    let servers = Servers::at(&addresses[0]);
    let output = explained(&servers, &["x"]);
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said.contains("not known on these servers"), "{said}");
    let seen = json(&explained(&servers, &["--json", "x"]));
    assert_eq!(seen["locks"][0]["lately"], Value::Null);
}

/// A session is opened and closed, which takes two zxids; the tree stays as it is.
#[test]
fn explaining_writes_nothing_but_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = bellwether();
    server.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--words",
        "conf",
        "--data",
    ]);
    let (_server, addresses) = serve(server.arg(&data));
    let below = Servers::at(&format!("{}/jobs", addresses[0]));
    below.done(&["lock", "x", "--", "true"]);
    let log = || {
        let output = bellwether().args(["log", "--json"]).arg(&data).output();
        let said = text(&output.unwrap().stdout);
        let records = said.lines().map(|line| serde_json::from_str(line).unwrap());
        let records: Vec<Value> = records.collect();
        records
            .into_iter()
            .filter(|record| record["zxid"].is_string())
            .collect::<Vec<_>>()
    };
    let before = log().len();
    let seen = json(&explained(&below, &["--json", "x"]));
    // A server on this host tells where its log is, also below a chroot.
    assert_eq!(seen["locks"][0]["lately"]["count"], 1, "{seen}");
    let types: Vec<_> = log()[before..]
        .iter()
        .map(|record| record["type"].clone())
        .collect();
    assert_eq!(types, ["createSession", "closeSession"]);
}

#[test]
fn explaining_is_not_combined_with_clearing() {
    let servers = Servers::at("127.0.0.1:1");
    assert_code(&explained(&servers, &["--clear", "x"]), 2);
}
