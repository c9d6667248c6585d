//! `bellwether lock A B -- COMMAND`: several locks at once.

use rustix::process::Signal;

use crate::support::bellwether::{Running, assert_code, bellwether, holding, job, text};
use crate::support::line::Line;

on_both_engines! {
    all_are_held_while_the_command_runs_and_free_again_after_it,
    commands_that_name_them_in_another_order_do_not_wait_in_a_circle,
    those_that_are_had_are_given_back_when_one_is_not,
    lock_that_is_refused_leaves_no_crash_at_the_others,
    loss_of_one_stops_the_command,
    crash_is_told_at_each_of_them,
}

fn code(address: &str, arguments: &[&str]) -> Option<i32> {
    let output = job(address, arguments, "true").output();
    output.unwrap().status.code()
}

/// `lock` with several paths and a script.
fn several(address: &str, paths: &[&str], script: &str) -> std::process::Command {
    let mut command = bellwether();
    command.args(["lock", "--connect", address]).args(paths);
    command.args(["--", "sh", "-c", script]);
    command
}

fn all_are_held_while_the_command_runs_and_free_again_after_it(address: &str) {
    let script = "echo $BELLWETHER_PATHS; echo $BELLWETHER_TOKENS; read end";
    let mut command = several(address, &["b", "a", "b"], script);
    let mut holder = Running::start_with(command.stdin(std::process::Stdio::piped()));
    assert_eq!(holder.line().as_deref(), Some("/a /b"));
    let tokens = holder.line().unwrap();
    assert_eq!(tokens.split(' ').count(), 2, "{tokens}");
    assert_eq!(code(address, &["lock", "a", "--try"]), Some(124));
    assert_eq!(code(address, &["lock", "b", "--try"]), Some(124));
    holder.end_input();
    // What `read` returns at the end of its input.
    assert_eq!(holder.code(), Some(1));
    for path in ["a", "b"] {
        let tell = "echo $BELLWETHER_PREVIOUS";
        let next = job(address, &["lock", path, "--try"], tell).output();
        assert_eq!(text(&next.unwrap().stdout), "clean\n");
    }
}

fn commands_that_name_them_in_another_order_do_not_wait_in_a_circle(address: &str) {
    let mut all: Vec<_> = (0..6)
        .map(|number| match number % 2 {
            0 => several(address, &["a", "b"], "true"),
            _ => several(address, &["b", "a"], "true"),
        })
        .map(|mut command| Running::start(&mut command))
        .collect();
    for one in &mut all {
        assert_eq!(one.code(), Some(0), "{:?}", one.errors());
    }
}

fn those_that_are_had_are_given_back_when_one_is_not(address: &str) {
    let _holder = holding(address, &["lock", "b"]);
    let mut command = bellwether();
    command.args([
        "lock",
        "--try",
        "--connect",
        address,
        "a",
        "b",
        "--",
        "true",
    ]);
    assert_code(&command.output().unwrap(), 124);
    assert_eq!(code(address, &["lock", "a", "--try"]), Some(0));
}

fn lock_that_is_refused_leaves_no_crash_at_the_others(address: &str) {
    let _leader = holding(address, &["elect", "b"]);
    let refused = several(address, &["a", "b"], "true").output().unwrap();
    assert_code(&refused, 2);
    let tell = "echo $BELLWETHER_PREVIOUS";
    let next = job(address, &["lock", "a", "--try"], tell).output();
    assert_eq!(text(&next.unwrap().stdout), "clean\n");
}

fn loss_of_one_stops_the_command(address: &str) {
    let script = "echo held; exec tail -f /dev/null";
    let mut holder = Running::start(&mut several(address, &["a", "b"], script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    Line::at(address, "/b").delete();
    assert_eq!(holder.line(), None);
    assert_eq!(holder.code(), Some(123));
    let told = holder.errors();
    assert!(
        told.iter().any(|line| line.contains("/b is lost")),
        "{told:?}"
    );
    assert_eq!(code(address, &["lock", "a", "--try"]), Some(0));
}

fn crash_is_told_at_each_of_them(address: &str) {
    let script = "echo held; exec tail -f /dev/null";
    let mut holder = Running::start(&mut several(address, &["a", "b"], script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(143));
    for path in ["a", "b"] {
        let tell = "echo $BELLWETHER_PREVIOUS $BELLWETHER_PREVIOUS_END";
        let next = job(address, &["lock", path], tell).output().unwrap();
        assert_eq!(text(&next.stdout), "crashed terminated (SIGTERM)\n");
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for arguments in [
        &["lock", "a", "b", "--try", "--", "true"][..],
        &["lock", "a", "b//c", "--", "true"],
        &["lock", "--read", "a", "b", "--", "true"],
        &["lock", "a", "b", "--"],
    ] {
        let output = bellwether().args(arguments).output().unwrap();
        assert_code(&output, 2);
    }
}
