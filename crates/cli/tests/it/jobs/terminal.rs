//! Jobs that use the terminal, typed into an interactive shell in a pseudo-terminal.

use std::process::Stdio;

use crate::support::bellwether::{Running, assert_code, bellwether, user_and_host};
use crate::support::shell::Shell;

#[test]
fn job_reads_what_is_typed() {
    let mut shell = Shell::start();
    let script = "read x; echo \"got-$x\"; exit 7";
    shell.run(&format!("bellwether lock x -- sh -c '{script}'"));
    shell.until_shown("\n");
    shell.answer("hello", "got-hello");
    shell.until_shown("code=7");
}

#[test]
fn ctrl_c_reaches_the_job_once() {
    let mut shell = Shell::start();
    // A trap interrupts `wait` at once, and background processes of a script ignore Ctrl-C.
    let script = r#"trap "echo in\"\"t; kill \$!" INT; tail -f /dev/null & echo he""ld; wait; echo en""ded; exit 3"#;
    shell.run(&format!("bellwether lock x -- sh -c '{script}'"));
    shell.until_shown("held");
    shell.press("\x03");
    shell.until_shown("int\r\n");
    shell.until_shown("ended\r\n");
    shell.until_shown("code=3");
    let rest = shell.rest();
    assert!(!rest.contains("int"), "{rest}");
    assert_code(&shell.try_lock("0s"), 0);
}

#[test]
fn ctrl_c_ends_a_job_that_does_not_care() {
    let mut shell = Shell::start();
    shell.run("bellwether lock x -- sh -c 'echo he\"\"ld; exec tail -f /dev/null'");
    shell.until_shown("held");
    shell.press("\x03");
    shell.until_shown("code=130");
    assert_code(&shell.try_lock("0s"), 0);
}

#[test]
fn ctrl_c_ends_a_worker_with_its_command() {
    let mut shell = Shell::start();
    for item in ["one", "two"] {
        let mut put = bellwether();
        put.args(["queue", "put", "q", item, "-c", &shell.address]);
        assert_code(&put.output().unwrap(), 0);
    }
    shell.run("bellwether queue work q -- sh -c 'echo he\"\"ld; exec tail -f /dev/null'");
    shell.until_shown("held");
    shell.press("\x03");
    shell.until_shown("code=130");
}

#[test]
fn ctrl_c_ends_a_wait() {
    let mut shell = Shell::start();
    let mut holder = Running::start(bellwether().args([
        "lock",
        "-c",
        &shell.address,
        "x",
        "--",
        "sh",
        "-c",
        "echo held; exec tail -f /dev/null",
    ]));
    assert_eq!(holder.line().as_deref(), Some("held"));
    shell.run("bellwether lock x -- echo mine");
    shell.until_shown("waiting for /x");
    shell.press("\x03");
    shell.until_shown("code=130");
}

/// A contender that holds the lock until the input ends, or waits for it.
fn contender(address: &str) -> Running {
    let mut command = bellwether();
    command.args(["lock", "-c", address, "x", "--hold"]);
    Running::start_with(command.stdin(Stdio::piped()))
}

#[test]
fn wait_is_shown_in_one_line_that_changes_and_goes() {
    let mut shell = Shell::start_in("xterm");
    let mut first = contender(&shell.address);
    assert!(first.line().is_some());
    let mut second = contender(&shell.address);
    assert!(second.error_line().is_some());
    shell.type_line("bellwether lock x -- echo mi\"\"ne");
    shell.until_shown("echo mi\"\"ne\r\n");
    let me = user_and_host();
    let place = |place: &str, holder: &Running| {
        let holder = holder.id();
        format!("bellwether: waiting for /x: {place} in line, held by {me} pid {holder}, ")
    };
    let begin = place("2nd", &first);
    let row = shell.until_last_row(|row| row.starts_with(&begin));
    // The elapsed time is updated, on the same line.
    shell.until_last_row(|later| later.starts_with(&begin) && later != row);
    assert_eq!(shell.seen().len(), 1, "{:?}", shell.seen());
    first.end_input();
    assert!(second.line().is_some());
    let begin = place("next", &second);
    shell.until_last_row(|row| row.starts_with(&begin));
    assert_eq!(shell.seen().len(), 1, "{:?}", shell.seen());
    second.end_input();
    shell.until_last_row(|row| row == "ready>");
    assert_eq!(shell.seen(), ["mine", "ready>"]);
}

#[test]
fn wait_in_the_background_does_not_draw_over_what_is_typed() {
    let mut shell = Shell::start_in("xterm");
    let mut first = contender(&shell.address);
    assert!(first.line().is_some());
    let mut second = contender(&shell.address);
    assert!(second.error_line().is_some());
    shell.type_line("bellwether lock x -- echo mi\"\"ne &");
    shell.until_shown("waiting for /x: 2nd in line");
    shell.until_shown("\r\n");
    // Two seconds, in which a line that changes would be drawn again.
    assert_code(&shell.try_lock("2s"), 124);
    assert_eq!(shell.rest(), "");
    // What has changed is a line, as in a log.
    first.end_input();
    assert!(second.line().is_some());
    shell.until_shown("waiting for /x: next in line");
    shell.until_shown("\r\n");
    second.end_input();
    shell.until_shown("mine\r\n");
    assert!(!shell.rest().contains("\x1b[2K"), "{:?}", shell.rest());
}

#[test]
fn wait_that_is_interrupted_leaves_nothing_behind() {
    let mut shell = Shell::start_in("xterm");
    let mut holder = contender(&shell.address);
    assert!(holder.line().is_some());
    shell.type_line("bellwether lock x -- echo mi\"\"ne");
    shell.until_shown("echo mi\"\"ne\r\n");
    shell.until_last_row(|row| row.contains("next in line"));
    shell.press("\x03");
    shell.until_last_row(|row| row == "ready>");
    assert_eq!(shell.seen(), ["ready>"]);
}

#[test]
fn repair_and_job_have_the_terminal_in_turn() {
    let mut shell = Shell::start();
    shell.run("bellwether lock x -- sh -c 'kill -9 $$'");
    shell.until_shown("code=137");
    let script = "read x; echo \"got-$x\"";
    shell.run(&format!(
        "bellwether lock x --on-crash 'read x; echo repaired-$x' -- sh -c '{script}'"
    ));
    shell.until_shown("repairing");
    shell.answer("one", "repaired-one");
    shell.answer("two", "got-two");
    shell.until_shown("code=0");
}

/// Brings the job to the foreground, where it reads the input and ends.
fn brought_to_front(shell: &mut Shell) {
    shell.type_line("fg");
    shell.until_shown("bellwether lock");
    shell.until_shown("\n");
    shell.answer("hello", "got-hello");
    shell.until_shown("ready> ");
}

#[test]
fn ctrl_z_stops_the_job_and_not_the_heartbeat() {
    let mut shell = Shell::start();
    let script = "echo he\"\"ld; read x; echo \"got-$x\"";
    shell.type_line(&format!(
        "bellwether lock --session-timeout 4s x -- sh -c '{script}'"
    ));
    shell.until_shown("held");
    shell.press("\x1a");
    shell.until_shown("Stopped");
    shell.until_shown("ready> ");
    // The shell has the terminal, and the lock is kept for longer than the session timeout.
    assert_code(&shell.try_lock("6s"), 124);
    brought_to_front(&mut shell);
    shell.type_line("echo \"code=$?\"");
    shell.until_shown("code=0");
    assert_code(&shell.try_lock("0s"), 0);
}

#[test]
fn job_in_the_background_is_brought_to_the_front() {
    let mut shell = Shell::start();
    let script = "echo he\"\"ld; read x; echo \"got-$x\"";
    shell.type_line(&format!("bellwether lock x -- sh -c '{script}' &"));
    shell.until_shown("held");
    brought_to_front(&mut shell);
}

#[test]
fn terminal_is_given_back_to_a_script() {
    let mut shell = Shell::start();
    let script = "bellwether lock x -- echo ra\"\"n; read x; echo \"script-$x\"";
    shell.run(&format!("sh -c '{script}'"));
    shell.until_shown("ran");
    shell.answer("hello", "script-hello");
    shell.until_shown("code=0");
}

#[test]
fn terminal_is_given_back_when_the_keeper_is_killed() {
    let mut shell = Shell::start();
    let script = "bellwether lock x -- sh -c \"echo he\\\"\\\"ld; kill -KILL \\$PPID; tail -f /dev/null\"; read x; echo \"script-$x\"";
    shell.run(&format!("sh -c '{script}'"));
    shell.until_shown("held");
    shell.until_shown("the process that keeps the lock was killed");
    shell.answer("hello", "script-hello");
    shell.until_shown("code=0");
}

#[test]
fn waiter_that_is_stopped_does_not_run_its_job_until_it_goes_on() {
    let mut shell = Shell::start();
    let mut holder = contender(&shell.address);
    assert!(holder.line().is_some());
    shell.type_line("bellwether lock x -- echo ra\"\"n");
    shell.until_shown("waiting for /x");
    shell.press("\x1a");
    shell.until_shown("Stopped");
    holder.end_input();
    shell.until_shown("/x is held; the command starts when this job is continued");
    shell.type_line("fg");
    // The shell prints the command before it continues.
    shell.until_shown("bellwether lock x -- echo");
    shell.until_shown("ran\r\n");
    assert_code(&shell.try_lock("10s"), 0);
}
