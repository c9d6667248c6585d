//! `bellwether tasks`.

use rustix::process::Signal;
use serde_json::json;

use crate::support::bellwether::{Running, apache, assert_code, until};
use crate::support::line::Line;
use crate::support::servers::Servers;

on_local_and_apache! {
    tasks_are_done_once_each,
    tasks_that_fail_are_set_aside_and_retried,
    worker_that_is_told_to_end_begins_no_other_task,
}

fn tasks_are_done_once_each(servers: &Servers) {
    let added = servers.object(&["tasks", "add", "t", "a", "b", "c", "--data", "what"]);
    assert_eq!(added["added"], json!(["a", "b", "c"]));
    assert_code(&servers.run(&["tasks", "ls", "t"]), 1);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = format!("echo \"$BELLWETHER_TASK $(cat)\" >> {}", log.display());
    let work = ["tasks", "run", "t", "--", "sh", "-c", &script];
    let mut workers = [(); 2].map(|()| Running::start(&mut servers.command(&work)));
    for worker in &mut workers {
        assert_eq!(worker.code(), Some(0), "{:?}", worker.errors());
    }
    let log = std::fs::read_to_string(log).unwrap();
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a what", "b what", "c what"]);
    let again = servers.object(&["tasks", "add", "t", "a"]);
    assert_eq!(again["added"], json!([]));
    assert_eq!(
        servers.done(&["tasks", "ls", "t"]),
        "0 open, 0 running, 3 done, 0 failed\n"
    );
}

fn tasks_that_fail_are_set_aside_and_retried(servers: &Servers) {
    servers.done(&["tasks", "add", "t", "good", "bad"]);
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
    assert_code(&servers.run(&work), 1);
    let status = servers.object(&["tasks", "ls", "t"]);
    assert_eq!(
        (&status["done"], &status["failed"][0]["id"]),
        (&json!(1), &json!("bad"))
    );
    assert_eq!(status["failed"][0]["attempts"], 2);
    assert_code(&servers.run(&["tasks", "ls", "t", "--retry", "good"]), 1);
    let retried = servers.object(&["tasks", "ls", "t", "--retry", "bad"]);
    assert_eq!(
        (&retried["open"], &retried["failed"]),
        (&json!(1), &json!([]))
    );
    // A command that is killed fails like any other, and the worker goes on.
    let script = "test $BELLWETHER_ATTEMPTS -gt 1 || kill -9 $$";
    let work = ["tasks", "run", "t", "--", "sh", "-c", script];
    assert_code(&servers.run(&work), 1);
    assert_code(&servers.run(&["tasks", "ls", "t"]), 0);
    // An interrupted task is given back.
    servers.done(&["tasks", "add", "t", "long"]);
    let mut worker = Running::start(&mut servers.command(&[
        "tasks",
        "run",
        "t",
        "--",
        "sh",
        "-c",
        "echo in; exec tail -f /dev/null",
    ]));
    assert_eq!(worker.line().as_deref(), Some("in"));
    worker.signal(Signal::TERM);
    assert_eq!(worker.code(), Some(143));
    until("it is open again", || {
        servers.object(&["tasks", "ls", "t"])["open"] == json!(1)
    });
}

fn worker_that_is_told_to_end_begins_no_other_task(servers: &Servers) {
    for (signal, how, code) in [
        (Signal::TERM, "exit 3", 143),
        (Signal::INT, "exit 0", 130),
        // The signal may mean something else to the command.
        (Signal::HUP, "exit 0", 0),
    ] {
        servers.done(&["tasks", "add", "t", "a", "b"]);
        let script = format!(
            "test -e begun && exit 0
            >begun; trap 'kill $!; {how}' TERM INT HUP; tail -f /dev/null & echo in; wait"
        );
        let folder = tempfile::tempdir().unwrap();
        let mut worker = servers.command(&["tasks", "run", "t", "--", "sh", "-c", &script]);
        let mut worker = Running::start(worker.current_dir(folder.path()));
        assert_eq!(worker.line().as_deref(), Some("in"));
        worker.signal(signal);
        assert_eq!(worker.code(), Some(code), "{signal:?}");
        let status = servers.object(&["tasks", "ls", "t"]);
        let is_left = code != 0;
        assert_eq!(status["open"] != json!(0), is_left, "{signal:?}: {status}");
        servers.done(&["rm", "-r", "--yes", "t"]);
    }
}

#[test]
fn worker_whose_session_ends_goes_on_in_another_one() {
    let (_server, address) = apache();
    let servers = Servers::at(&address);
    servers.done(&["tasks", "add", "t", "long"]);
    let script = "test -e begun && exit 0; >begun; echo in; exec tail -f /dev/null";
    let folder = tempfile::tempdir().unwrap();
    let mut worker = servers.command(&["tasks", "run", "t", "--", "sh", "-c", script]);
    let mut worker = Running::start(worker.current_dir(folder.path()));
    assert_eq!(worker.line().as_deref(), Some("in"));
    Line::at(&address, "/t/claims").end_session();
    assert_eq!(worker.code(), Some(0), "{:?}", worker.errors());
    assert_code(&servers.run(&["tasks", "ls", "t"]), 0);
}
