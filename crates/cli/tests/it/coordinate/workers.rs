//! `bellwether queue work` and `bellwether tasks run -j`: workers that keep running.

use std::process::Output;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::bellwether::{Running, assert_code, bellwether, job, serve, text};

on_both_engines! {
    workers_take_items_side_by_side_until_nothing_comes,
    failed_attempts_are_paused_between,
    signal_ends_all_workers_and_their_jobs,
    worker_that_cannot_run_the_command_ends_all,
    t98_worker_that_is_stopped_five_times_loses_no_attempt,
    t98_command_that_cannot_be_run_costs_no_attempt,
    t98_task_whose_worker_is_stopped_loses_no_attempt,
    worker_whose_parent_has_ended_takes_nothing,
    tasks_are_done_side_by_side,
}

fn run(address: &str, arguments: &[&str]) -> Output {
    let mut command = bellwether();
    command.args(arguments).args(["--connect", address]);
    command.output().unwrap()
}

/// A script that continues when two instances of it run at the same time.
fn meet(folder: &TempDir) -> String {
    let folder = folder.path().display();
    format!(
        "cd {folder} && mkdir here-$$ && until [ $(ls | wc -l) -ge 2 ]; do sleep 0.01; done; echo \"$(cat)\""
    )
}

fn workers_take_items_side_by_side_until_nothing_comes(address: &str) {
    for item in ["one", "two", "three", "four"] {
        assert_code(&run(address, &["queue", "put", "q", item]), 0);
    }
    let folder = TempDir::new().unwrap();
    let work = ["queue", "work", "q", "-j", "2", "--idle", "1s"];
    let output = job(address, &work, &meet(&folder)).output().unwrap();
    assert_code(&output, 0);
    let said = text(&output.stdout);
    let mut items: Vec<_> = said.lines().collect();
    items.sort_unstable();
    assert_eq!(items, ["four", "one", "three", "two"]);
    assert_eq!(text(&run(address, &["queue", "ls", "q"]).stdout), "");
}

fn failed_attempts_are_paused_between(address: &str) {
    assert_code(&run(address, &["queue", "put", "q", "x"]), 0);
    let work = [
        "queue",
        "work",
        "q",
        "--attempts",
        "3",
        "--pause",
        "300ms",
        "--idle",
        "3s",
    ];
    let output = job(address, &work, "date +%s%3N; exit 3").output().unwrap();
    assert_code(&output, 0);
    let times = text(&output.stdout);
    let times: Vec<u64> = times.lines().map(|line| line.parse().unwrap()).collect();
    let [first, second, third] = times[..] else {
        panic!("{times:?}");
    };
    let pauses = [second - first, third - second].map(Duration::from_millis);
    assert!(pauses[0] >= Duration::from_millis(300), "{pauses:?}");
    assert!(pauses[1] >= Duration::from_millis(600), "{pauses:?}");
    let told = text(&output.stderr);
    assert!(
        told.contains("a command for /q failed: exited with 3; next attempt in 300ms"),
        "{told}"
    );
    let dead = text(&run(address, &["queue", "dead", "q"]).stdout);
    assert!(dead.contains("exited with 3"), "{dead}");
}

fn signal_ends_all_workers_and_their_jobs(address: &str) {
    for item in ["one", "two"] {
        assert_code(&run(address, &["queue", "put", "q", item]), 0);
    }
    let workers = || {
        let script = "echo began; exec tail -f /dev/null";
        let arguments = ["queue", "work", "q", "-j", "2"];
        let mut workers = Running::start(&mut job(address, &arguments, script));
        for _ in 0..2 {
            assert_eq!(workers.line().as_deref(), Some("began"));
        }
        workers
    };
    let mut told_to_end = workers();
    told_to_end.signal(Signal::TERM);
    assert_eq!(told_to_end.code(), Some(143));
    // All of them have closed stdout.
    assert_eq!(told_to_end.line(), None);
    // When a supervisor is killed, its workers end too.
    let mut killed = workers();
    killed.signal(Signal::KILL);
    assert_eq!(killed.line(), None);
}

fn worker_that_cannot_run_the_command_ends_all(address: &str) {
    assert_code(&run(address, &["queue", "put", "q", "x"]), 0);
    let mut command = bellwether();
    command.args(["queue", "work", "q", "-j", "2", "--connect", address]);
    let output = command.args(["--", "/nonexistent/program"]).output();
    assert_code(&output.unwrap(), 127);
}

/// How often the first item has been delivered, as far as that counts.
fn attempts(address: &str) -> Value {
    let listed = run(address, &["queue", "ls", "q", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed["items"][0]["attempts"].clone()
}

fn t98_worker_that_is_stopped_five_times_loses_no_attempt(address: &str) {
    assert_code(&run(address, &["queue", "put", "q", "x"]), 0);
    let script = "echo $BELLWETHER_ATTEMPTS; exec tail -f /dev/null";
    for signal in [
        Signal::TERM,
        Signal::TERM,
        Signal::TERM,
        Signal::INT,
        Signal::TERM,
    ] {
        let work = ["queue", "work", "q", "--grace", "100ms"];
        let mut worker = Running::start(&mut job(address, &work, script));
        assert_eq!(worker.line().as_deref(), Some("1"));
        worker.signal(signal);
        assert_eq!(worker.code(), Some(128 + signal.as_raw()));
        assert_eq!(attempts(address), 0);
    }
    // The fault of the command itself costs one.
    let take = ["queue", "take", "q", "--connect", address, "--", "false"];
    assert_code(&bellwether().args(take).output().unwrap(), 1);
    assert_eq!(attempts(address), 1);
    let mut taker = Running::start(&mut job(address, &["queue", "take", "q"], script));
    assert_eq!(taker.line().as_deref(), Some("2"));
    taker.signal(Signal::TERM);
    assert_eq!(taker.code(), Some(143));
    assert_eq!(attempts(address), 1);
}

fn t98_command_that_cannot_be_run_costs_no_attempt(address: &str) {
    assert_code(&run(address, &["queue", "put", "q", "x"]), 0);
    for _ in 0..2 {
        for verb in ["work", "take"] {
            for (program, code) in [("/nonexistent/program", 127), ("/dev/null", 126)] {
                let arguments = ["queue", verb, "q", "--attempts", "1", "--connect", address];
                let mut command = bellwether();
                let output = command.args(arguments).args(["--", program]).output();
                assert_code(&output.unwrap(), code);
                assert_eq!(attempts(address), 0);
            }
        }
    }
}

fn t98_task_whose_worker_is_stopped_loses_no_attempt(address: &str) {
    assert_code(&run(address, &["tasks", "add", "t", "users"]), 0);
    let script = "echo $BELLWETHER_ATTEMPTS; exec tail -f /dev/null";
    for _ in 0..2 {
        let work = ["tasks", "run", "t", "--grace", "100ms", "--attempts", "1"];
        let mut worker = Running::start(&mut job(address, &work, script));
        assert_eq!(worker.line().as_deref(), Some("1"));
        worker.signal(Signal::TERM);
        assert_eq!(worker.code(), Some(143));
    }
    let mut command = bellwether();
    command.args(["tasks", "run", "t", "--attempts", "1", "--connect", address]);
    let output = command.args(["--", "/nonexistent/program"]).output();
    assert_code(&output.unwrap(), 127);
    assert_code(
        &job(address, &["tasks", "run", "t"], "true")
            .output()
            .unwrap(),
        0,
    );
}

/// The server's default times allow a long grace.
#[test]
fn t98_worker_that_is_told_to_end_finishes_its_command() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = &addresses[0];
    assert_code(&run(address, &["queue", "put", "q", "x"]), 0);
    let folder = TempDir::new().unwrap();
    let end = folder.path().join("end");
    let script = format!(
        "echo began; until [ -e {} ]; do sleep 0.01; done",
        end.display()
    );
    let work = [
        "queue",
        "work",
        "q",
        "--session-timeout",
        "30s",
        "--grace",
        "10s",
    ];
    let mut worker = Running::start(&mut job(address, &work, &script));
    assert_eq!(worker.line().as_deref(), Some("began"));
    worker.signal(Signal::TERM);
    std::fs::write(end, "").unwrap();
    assert_eq!(worker.code(), Some(143));
    assert_eq!(text(&run(address, &["queue", "ls", "q"]).stdout), "");
}

fn worker_whose_parent_has_ended_takes_nothing(address: &str) {
    assert_code(&run(address, &["queue", "put", "q", "x"]), 0);
    // The parent is this process, not the first one.
    let worker = ["--worker=1", "queue", "work", "q", "--idle", "1s"];
    let output = job(address, &worker, "echo ran").output().unwrap();
    assert_code(&output, 125);
    assert_eq!(text(&output.stdout), "");
    assert_eq!(text(&run(address, &["queue", "peek", "q"]).stdout), "x");
}

fn tasks_are_done_side_by_side(address: &str) {
    assert_code(&run(address, &["tasks", "add", "t", "users", "orders"]), 0);
    let folder = TempDir::new().unwrap();
    let script = format!("{}; echo $BELLWETHER_TASK", meet(&folder));
    let output = job(address, &["tasks", "run", "t", "-j", "2"], &script)
        .output()
        .unwrap();
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said.contains("users") && said.contains("orders"), "{said}");
    assert_code(&run(address, &["tasks", "ls", "t"]), 0);
}
