//! `bellwether lock`.

use std::process::Command;

use ::bellwether::zk;
use rustix::process::Signal;

use crate::bellwether::{Running, assert_code, bellwether, text};

on_both_engines! {
    exit_code_and_flags_of_the_command_are_kept,
    command_killed_by_a_signal_is_128_and_its_number,
    command_that_cannot_be_run_is_126_and_missing_is_127,
    bad_path_is_125,
    token_and_path_are_in_the_environment,
    held_lock_is_124_at_once_and_after_the_wait,
    two_commands_exclude_each_other,
    long_wait_is_told_in_one_line,
    signal_ends_a_waiter_and_frees_its_place,
    signals_are_passed_on_and_waited_for,
    lost_lock_ends_the_whole_group,
    lost_lock_lets_the_command_end_in_its_own_way,
}

/// `bellwether lock … -- sh -c script`.
fn lock(address: &str, options: &[&str], script: &str) -> Command {
    let mut command = bellwether();
    command
        .args(["lock", "--connect", address])
        .args(options)
        .args(["jobs/nightly", "--", "sh", "-c", script]);
    command
}

/// A holder that says `held` and ends when it is killed or asked to.
fn holder(address: &str) -> Running {
    let mut holder = Running::start(&mut lock(address, &[], "echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

fn exit_code_and_flags_of_the_command_are_kept(address: &str) {
    let mut command = bellwether();
    command.args([
        "lock",
        "--connect",
        address,
        "x",
        "--",
        "sh",
        "-c",
        "echo \"$1\"; exit 7",
        "sh",
        "--wait",
    ]);
    let output = command.output().unwrap();
    assert_code(&output, 7);
    assert_eq!(text(&output.stdout), "--wait\n");
    assert_eq!(text(&output.stderr), "");
}

fn command_killed_by_a_signal_is_128_and_its_number(address: &str) {
    assert_code(&lock(address, &[], "kill -KILL $$").output().unwrap(), 137);
}

fn command_that_cannot_be_run_is_126_and_missing_is_127(address: &str) {
    let run = |program: &str| {
        bellwether()
            .args(["lock", "--connect", address, "/x", "--", program])
            .output()
            .unwrap()
    };
    assert_code(&run("/"), 126);
    assert_code(&run("/no/such/program"), 127);
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &["lock"][..],
        &["lock", "x"],
        &["lock", "x", "--wait", "soon", "--", "true"],
    ] {
        assert_code(&bellwether().args(arguments).output().unwrap(), 2);
    }
}

fn bad_path_is_125(address: &str) {
    let output = bellwether()
        .args(["lock", "-c", address, "/a//b", "--", "true"])
        .output()
        .unwrap();
    assert_code(&output, 125);
    assert!(text(&output.stderr).contains("/a//b"));
}

fn token_and_path_are_in_the_environment(address: &str) {
    let token = || {
        let output = lock(address, &[], "echo $BELLWETHER_TOKEN $BELLWETHER_PATH")
            .output()
            .unwrap();
        assert_code(&output, 0);
        let line = text(&output.stdout);
        let (token, path) = line.trim().split_once(' ').unwrap();
        assert_eq!(path, "/jobs/nightly");
        token.parse::<i64>().unwrap()
    };
    let (first, second) = (token(), token());
    assert!(first < second, "{first} {second}");
}

fn held_lock_is_124_at_once_and_after_the_wait(address: &str) {
    let _holder = holder(address);
    let run = |options: &[&str]| lock(address, options, "echo ran").output().unwrap();
    for (options, code) in [
        (&["--try"][..], 124),
        (&["--wait", "50ms"], 124),
        (&["--wait", "0s"], 124),
        (&["--try", "-E", "9"], 9),
    ] {
        let output = run(options);
        assert_code(&output, code);
        assert_eq!(text(&output.stdout), "", "{options:?}");
    }
}

fn two_commands_exclude_each_other(address: &str) {
    let folder = tempfile::tempdir().unwrap();
    let busy = folder.path().join("busy");
    // mkdir fails if another one is inside.
    let script = format!(
        "mkdir {0} && echo in >> {0}.log && rmdir {0}",
        busy.display()
    );
    let mut all: Vec<_> = (0..6)
        .map(|_| Running::start(&mut lock(address, &[], &script)))
        .collect();
    for one in &mut all {
        assert_eq!(one.code(), Some(0));
    }
    let log = std::fs::read_to_string(folder.path().join("busy.log")).unwrap();
    assert_eq!(log.lines().count(), 6);
}

fn long_wait_is_told_in_one_line(address: &str) {
    let holder = holder(address);
    let mut waiter = Running::start(&mut lock(address, &[], "echo mine"));
    assert_eq!(
        waiter.error_line().as_deref(),
        Some("bellwether: waiting for /jobs/nightly")
    );
    holder.signal(Signal::TERM);
    assert_eq!(waiter.line().as_deref(), Some("mine"));
    assert_eq!(waiter.error_line(), None);
    assert_eq!(waiter.code(), Some(0));
}

fn signal_ends_a_waiter_and_frees_its_place(address: &str) {
    let mut holder = holder(address);
    let mut waiter = Running::start(&mut lock(address, &[], "echo mine"));
    waiter.error_line();
    waiter.signal(Signal::INT);
    assert_eq!(waiter.code(), Some(130));
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(143));
    assert_code(&lock(address, &["--try"], "true").output().unwrap(), 0);
}

fn signals_are_passed_on_and_waited_for(address: &str) {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
    ] {
        let script = format!(
            "trap 'echo got; exit 5' {name}; echo ready; while :; do read x <&3; done 3<>pipe"
        );
        let folder = tempfile::tempdir().unwrap();
        let fifo = Command::new("mkfifo")
            .arg(folder.path().join("pipe"))
            .status()
            .unwrap();
        assert!(fifo.success());
        let mut job = Running::start(lock(address, &[], &script).current_dir(folder.path()));
        assert_eq!(job.line().as_deref(), Some("ready"));
        job.signal(signal);
        assert_eq!(job.line().as_deref(), Some("got"), "{name}");
        assert_eq!(job.code(), Some(5));
        // Released, not left to the end of the session.
        assert_code(&lock(address, &["--try"], "true").output().unwrap(), 0);
    }
}

fn lost_lock_ends_the_whole_group(address: &str) {
    // The shell heeds no SIGTERM, and its child keeps stdout open: the end of stdout tells that both are gone.
    let mut job = Running::start(&mut lock(
        address,
        &[],
        "trap '' TERM; echo held; tail -f /dev/null; echo never",
    ));
    assert_eq!(job.line().as_deref(), Some("held"));
    delete_contenders(address);
    assert_eq!(job.line(), None);
    assert_eq!(job.code(), Some(123));
}

fn lost_lock_lets_the_command_end_in_its_own_way(address: &str) {
    let script = "trap 'kill $!; echo cleaned; exit 0' TERM; tail -f /dev/null & echo held; wait";
    let mut job = Running::start(&mut lock(address, &[], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    delete_contenders(address);
    assert_eq!(job.line().as_deref(), Some("cleaned"));
    assert_eq!(job.code(), Some(123));
}

#[test]
fn unreachable_server_is_125() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut command = lock(
        &format!("127.0.0.1:{port}"),
        &["--session-timeout", "500ms"],
        "true",
    );
    let output = command.output().unwrap();
    assert_code(&output, 125);
    assert!(
        text(&output.stderr).contains("no server answers"),
        "{}",
        text(&output.stderr)
    );
}

/// Deletes what stands in the queue, as another hand would.
fn delete_contenders(address: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = zk::Client::connect(address).await.unwrap();
        for name in client.list_children("/jobs/nightly").await.unwrap() {
            client
                .delete(&format!("/jobs/nightly/{name}"), None)
                .await
                .unwrap();
        }
    });
}
