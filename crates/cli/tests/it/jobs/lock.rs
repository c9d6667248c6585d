//! `bellwether lock`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::bellwether::{Running, assert_code, bellwether, text, user_and_host};
use crate::support::line::Line;

on_both_engines! {
    hold_prints_the_token_and_ends_with_its_input,
    hold_ends_by_a_signal,
    hold_that_is_lost_is_123,
    hold_waits_its_turn,
    grace_above_a_third_of_the_session_timeout_is_2,
    grace_is_what_a_stubborn_command_gets,
    message_and_program_are_in_the_line,
    bad_path_is_2,
    token_and_path_are_in_the_environment,
    held_lock_is_124_at_once_and_after_the_wait,
    two_commands_exclude_each_other,
    long_wait_is_told_in_a_line_for_every_change,
    try_tells_who_holds_it,
    signal_ends_a_waiter_and_frees_its_place,
    lost_lock_lets_the_command_end_in_its_own_way,
}

const PATH: &str = "/jobs/nightly";

/// `bellwether lock … -- sh -c script`.
fn lock(address: &str, options: &[&str], script: &str) -> Command {
    let mut command = bellwether();
    command
        .args(["lock", "--connect", address])
        .args(options)
        .args(["jobs/nightly", "--", "sh", "-c", script]);
    command
}

/// A holder that prints `held` and ends when it is killed or asked to.
fn holder(address: &str) -> Running {
    let mut holder = Running::start(&mut lock(address, &[], "echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &["lock"][..],
        &["lock", "x"],
        &["lock", "x", "--wait", "soon", "--", "true"],
        &["lock", "x", "--permits", "2", "--", "true"],
        &["lock", "x", "--of", "2", "--permits", "3", "--", "true"],
        &["lock", "x", "--of", "0", "--", "true"],
        &["lock", "x", "--read", "--write", "--", "true"],
        &["lock", "x", "--read", "--on-crash", "true", "--", "true"],
        &["lock", "x", "--of", "2", "--on-crash", "fail", "--", "true"],
        &[
            "lock",
            "x",
            "--layout",
            "kazoo",
            "--lock-delay",
            "1s",
            "--",
            "true",
        ],
        &["lock", "x", "--hold", "--on-crash", "true"],
        &["lock", "x", "--hold", "--grace", "1s"],
        &["lock", "x", "--json", "--", "true"],
        &["lock", "x", "--clear", "--", "true"],
        &["lock", "x", "--clear", "--hold"],
        &["elect", "x"],
        &["rendezvous", "x", "--", "true"],
        &["rendezvous", "x", "--size", "0", "--", "true"],
        &["once", "x"],
        &["note", "half way"],
    ] {
        assert_code(&bellwether().args(arguments).output().unwrap(), 2);
    }
}

fn bad_path_is_2(address: &str) {
    let output = bellwether()
        .args(["lock", "-c", address, "/a//b", "--", "true"])
        .output()
        .unwrap();
    assert_code(&output, 2);
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
    // mkdir fails if another job is inside.
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

fn try_tells_who_holds_it(address: &str) {
    let script = "echo held; exec tail -f /dev/null";
    let mut holder = Running::start(&mut lock(address, &["-m", "full backup"], script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let output = lock(address, &["--try"], "true").output().unwrap();
    assert_code(&output, 124);
    let (me, pid) = (user_and_host(), holder.id());
    let holder = format!("{PATH} is held by {me} pid {pid} sh (full backup), ");
    let said = text(&output.stderr);
    assert!(said.contains(&holder), "{said}");
    let quiet = lock(address, &["--try", "--quiet"], "true").output();
    assert_eq!(text(&quiet.unwrap().stderr), "");
}

fn long_wait_is_told_in_a_line_for_every_change(address: &str) {
    let mut first = Running::start_with(&mut hold(address, &["--message", "first one"]));
    assert!(first.line().is_some());
    let mut second = Running::start_with(&mut hold(address, &[]));
    assert!(second.error_line().is_some());
    let mut third = Running::start(&mut lock(address, &[], "echo mine"));
    let me = user_and_host();
    let place = "bellwether: waiting for /jobs/nightly";
    let told = third.error_line().unwrap();
    let holder = format!(
        "{place}: 2nd in line, held by {me} pid {} (first one), ",
        first.id()
    );
    assert!(told.starts_with(&holder), "{told}");
    first.end_input();
    let told = third.error_line().unwrap();
    let holder = format!("{place}: next in line, held by {me} pid {}, ", second.id());
    assert!(told.starts_with(&holder), "{told}");
    assert!(second.line().is_some());
    second.end_input();
    assert_eq!(third.line().as_deref(), Some("mine"));
    // Nothing was printed after that.
    assert_eq!(third.errors(), [""; 0]);
    assert_eq!(third.code(), Some(0));
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

fn lost_lock_lets_the_command_end_in_its_own_way(address: &str) {
    let script = "trap 'kill $!; echo cleaned; exit 0' TERM; tail -f /dev/null & echo held; wait";
    let mut job = Running::start(&mut lock(address, &[], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    Line::at(address, PATH).delete();
    assert_eq!(job.line().as_deref(), Some("cleaned"));
    assert_eq!(job.code(), Some(123));
}

fn hold(address: &str, options: &[&str]) -> Command {
    let mut command = bellwether();
    command.args(["lock", "--connect", address, "--hold", "jobs/nightly"]);
    command.args(options).stdin(Stdio::piped());
    command
}

fn hold_prints_the_token_and_ends_with_its_input(address: &str) {
    let mut first = Running::start_with(&mut hold(address, &[]));
    let token: i64 = first.line().unwrap().parse().unwrap();
    assert_code(&lock(address, &["--try"], "true").output().unwrap(), 124);
    first.end_input();
    assert_eq!(first.code(), Some(0));
    let mut second = Running::start_with(&mut hold(address, &["--json"]));
    let line: serde_json::Value = serde_json::from_str(&second.line().unwrap()).unwrap();
    assert_eq!(line["path"], "/jobs/nightly");
    assert!(line["token"].as_i64().unwrap() > token, "{line} {token}");
}

fn hold_ends_by_a_signal(address: &str) {
    let mut holder = Running::start_with(&mut hold(address, &[]));
    assert!(holder.line().is_some());
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(0));
    assert_code(&lock(address, &["--try"], "true").output().unwrap(), 0);
}

fn hold_that_is_lost_is_123(address: &str) {
    let mut holder = Running::start_with(&mut hold(address, &[]));
    assert!(holder.line().is_some());
    Line::at(address, PATH).delete();
    assert_eq!(holder.code(), Some(123));
}

fn hold_waits_its_turn(address: &str) {
    let _holder = holder(address);
    let mut late = Running::start_with(&mut hold(address, &["--wait", "50ms"]));
    assert_eq!(late.code(), Some(124));
    assert_eq!(late.line(), None);
    let mut patient = Running::start_with(&mut hold(address, &[]));
    assert!(patient.error_line().unwrap().contains("waiting for"));
    patient.signal(Signal::INT);
    assert_eq!(patient.code(), Some(130));
}

fn grace_above_a_third_of_the_session_timeout_is_2(address: &str) {
    let options = ["--session-timeout", "3s", "--grace", "1001ms"];
    let output = lock(address, &options, "echo ran").output().unwrap();
    assert_code(&output, 2);
    assert_eq!(text(&output.stdout), "");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("hint: use --session-timeout 4s"),
        "{errors}"
    );
    let options = ["--session-timeout", "3s", "--grace", "1s"];
    assert_code(&lock(address, &options, "true").output().unwrap(), 0);
}

fn grace_is_what_a_stubborn_command_gets(address: &str) {
    let start = Instant::now();
    let script = "trap '' TERM; echo held; tail -f /dev/null; echo never";
    let mut job = Running::start(&mut lock(address, &["--grace", "1s"], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    Line::at(address, PATH).delete();
    assert_eq!(job.line(), None);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

fn message_and_program_are_in_the_line(address: &str) {
    let script = "echo held; exec tail -f /dev/null";
    let mut job = Running::start(&mut lock(address, &["--message", "nightly run"], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    let contenders = Line::at(address, PATH).contenders();
    let [contender] = &contenders[..] else {
        panic!("{contenders:?}")
    };
    let who: serde_json::Value = serde_json::from_slice(&contender.data).unwrap();
    assert_eq!(
        (&who["message"], &who["command"]),
        (&"nightly run".into(), &"sh".into())
    );
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
        text(&output.stderr).contains(": connection refused")
            && text(&output.stderr).contains("hint: `bellwether serve --listen"),
        "{}",
        text(&output.stderr)
    );
}
