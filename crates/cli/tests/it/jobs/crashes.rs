//! Holders that crash, and what the next holder learns: crash marks, notes, `--on-crash`, `--lock-delay`, `--clear`.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::bellwether::{
    Running, assert_code, bellwether, child_of, holding, job, serve, text, user_and_host,
};
use crate::support::home::NOBODY;
use crate::support::line::Line;

on_both_engines! {
    one_that_finishes_leaves_no_crash_whatever_its_code,
    killed_command_is_a_crash_with_its_last_note,
    host_that_vanishes_is_told_with_the_time_that_nothing_was_heard_of_it,
    killed_bellwether_is_a_crash,
    next_holder_is_told_how_the_one_before_ended,
    lost_lock_is_a_crash,
    crash_can_refuse_the_next_until_it_is_cleared,
    crash_can_be_repaired_first,
    repair_that_fails_leaves_all_as_it_was,
    repair_that_dies_keeps_the_note,
    delay_comes_after_a_crash_only,
    command_that_cannot_be_run_is_no_crash_and_forgets_none,
    reader_is_told_and_clears_nothing,
    hold_tells_of_a_crash_too,
    crash_is_reported_even_if_notices_are_silenced,
    break_of_a_hold_for_a_script_is_told_to_the_next_holder,
    held_lock_cannot_be_cleared,
    note_where_none_is_kept_is_1,
    other_layouts_know_nothing,
}

/// Prints what a job knows about the previous one.
const TELL: &str =
    "echo \"$BELLWETHER_PREVIOUS|$BELLWETHER_PREVIOUS_NOTE|$BELLWETHER_PREVIOUS_TOKEN\"";

/// Runs a script under the lock and returns what it printed.
#[track_caller]
fn lock(address: &str, options: &[&str], script: &str, code: i32) -> String {
    let output = job(address, &[&["lock", "x"], options].concat(), script)
        .output()
        .unwrap();
    assert_code(&output, code);
    text(&output.stdout).trim().to_owned()
}

/// A job that leaves a note and is killed; returns its token.
#[track_caller]
fn crash(address: &str, note: &str) -> String {
    let script = format!("bellwether note '{note}' && echo $BELLWETHER_TOKEN && kill -KILL $$");
    lock(address, &[], &script, 137)
}

fn one_that_finishes_leaves_no_crash_whatever_its_code(address: &str) {
    assert_eq!(lock(address, &[], TELL, 0), "clean||");
    lock(address, &[], "bellwether note begun; exit 3", 3);
    assert_eq!(lock(address, &[], TELL, 0), "clean||");
}

fn killed_command_is_a_crash_with_its_last_note(address: &str) {
    crash(address, "copied 3 of 5");
    let script = "bellwether note first; bellwether note 'second one'; kill -KILL $$";
    lock(address, &[], script, 137);
    let output = job(address, &["lock", "x"], TELL).output().unwrap();
    let told = text(&output.stderr);
    assert!(
        told.contains(" sh held /x before and did not finish: killed (SIGKILL) ")
            && told.contains(" ago; its last note: \"second one\""),
        "{told}"
    );
    assert!(text(&output.stdout).starts_with("crashed|second one|"));
    assert_eq!(lock(address, &[], TELL, 0), "clean||");
}

fn next_holder_is_told_how_the_one_before_ended(address: &str) {
    let end = "echo \"$BELLWETHER_PREVIOUS_END\"";
    for (signal, code, how) in [
        ("INT", 130, "interrupted (SIGINT)"),
        ("TERM", 143, "terminated (SIGTERM)"),
        ("KILL", 137, "killed (SIGKILL)"),
    ] {
        lock(address, &[], &format!("kill -{signal} $$"), code);
        let output = bellwether()
            .args(["locks", "--json", "x", "--connect", address])
            .output()
            .unwrap();
        let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let ended = &seen["sights"][0]["crash"]["ended"];
        assert_eq!(ended["how"], how, "{seen}");
        assert!(ended["at_ms"].is_u64(), "{seen}");
        assert_eq!(lock(address, &[], end, 0), how);
    }
    // By a break, with its author and reason.
    let mut holder = holding(address, &["lock", "x"]);
    break_hold(address, "5s");
    assert_eq!(holder.code(), Some(123));
    assert_broken(&lock(address, &[], end, 0));
    // Nothing is known of a holder that could not leave a message.
    let mut holder = holding(address, &["lock", "x"]);
    Line::at(address, "/x").delete();
    assert_eq!(holder.code(), Some(123));
    let output = job(address, &["lock", "x"], end).output().unwrap();
    assert_eq!(text(&output.stdout), "\n");
    let told = text(&output.stderr);
    assert!(
        told.contains("nothing was heard from its host for ")
            && told.contains(", or its node was deleted"),
        "{told}"
    );
}

fn host_that_vanishes_is_told_with_the_time_that_nothing_was_heard_of_it(address: &str) {
    let script = "echo $$; exec tail -f /dev/null";
    let arguments = ["lock", "x", "--session-timeout", "4s"];
    let mut holder = Running::start(&mut job(address, &arguments, script));
    let work: i32 = holder.line().unwrap().parse().unwrap();
    // All processes at once, as in a power failure: otherwise the front would end the job, or the keeper would leave a message.
    holder.signal(Signal::STOP);
    kill_process(child_of(holder.id()), Signal::KILL).unwrap();
    kill_process(Pid::from_raw(work).unwrap(), Signal::KILL).unwrap();
    holder.signal(Signal::KILL);
    let output = job(address, &["lock", "x"], "true").output().unwrap();
    assert_code(&output, 0);
    let told = text(&output.stderr);
    assert!(
        told.contains("nothing was heard from its host for 4s"),
        "{told}"
    );
}

fn killed_bellwether_is_a_crash(address: &str) {
    let script = "bellwether note here; echo held; exec tail -f /dev/null";
    let mut holder = Running::start(&mut job(address, &["lock", "x"], script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder.signal(Signal::KILL);
    assert!(lock(address, &[], TELL, 0).starts_with("crashed|here|"));
}

fn lost_lock_is_a_crash(address: &str) {
    let mut holder = holding(address, &["lock", "x"]);
    Line::at(address, "/x").delete();
    assert_eq!(holder.code(), Some(123));
    assert!(lock(address, &[], TELL, 0).starts_with("crashed||"));
}

fn crash_can_refuse_the_next_until_it_is_cleared(address: &str) {
    let fail = ["--on-crash", "fail"];
    assert_eq!(lock(address, &fail, "echo ran", 0), "ran");
    let token = crash(address, "half");
    // Reported to every later caller.
    for _ in 0..2 {
        let output = job(address, &["lock", "x", "--on-crash", "fail"], "echo ran")
            .output()
            .unwrap();
        assert_code(&output, 122);
        assert_eq!(text(&output.stdout), "");
        let errors = text(&output.stderr);
        assert!(errors.contains("\"half\""), "{errors}");
        assert!(
            errors.contains("then run: bellwether lock --clear /x"),
            "{errors}"
        );
    }
    let clear = |options: &[&str]| {
        let output = bellwether()
            .args(["lock", "--clear", "x", "--connect", address])
            .args(options)
            .output()
            .unwrap();
        assert_code(&output, 0);
        output
    };
    let cleared: serde_json::Value = serde_json::from_slice(&clear(&["--json"]).stdout).unwrap();
    assert_eq!(cleared, serde_json::json!({"path": "/x", "cleared": true}));
    let again = text(&clear(&[]).stderr);
    assert!(again.contains("no crash is recorded"), "{again}");
    assert_eq!(lock(address, &fail, "echo ran", 0), "ran");
    assert!(token.parse::<i64>().is_ok());
}

fn crash_can_be_repaired_first(address: &str) {
    let token = crash(address, "half");
    let options = ["--on-crash", TELL];
    assert_eq!(
        lock(address, &options, TELL, 0),
        format!("crashed|half|{token}\nrepaired|half|{token}")
    );
    assert_eq!(lock(address, &options, TELL, 0), "clean||");
}

fn repair_that_fails_leaves_all_as_it_was(address: &str) {
    let token = crash(address, "half");
    assert_eq!(
        lock(address, &["--on-crash", "exit 3"], "echo ran", 122),
        ""
    );
    assert_eq!(lock(address, &[], TELL, 0), format!("crashed|half|{token}"));
}

fn repair_that_dies_keeps_the_note(address: &str) {
    crash(address, "half");
    let options = ["--on-crash", "kill -KILL $$"];
    assert_eq!(lock(address, &options, "echo ran", 137), "");
    assert!(lock(address, &[], TELL, 0).starts_with("crashed|half|"));
}

fn delay_comes_after_a_crash_only(address: &str) {
    let delay = ["--lock-delay", "1s", "--wait", "30s"];
    lock(address, &delay, "true", 0);
    crash(address, "half");
    let start = Instant::now();
    assert!(lock(address, &delay, TELL, 0).starts_with("crashed|half|"));
    assert!(start.elapsed() >= Duration::from_secs(1));
    // A caller with a shorter wait does not acquire it, and leaves the mark.
    crash(address, "again");
    lock(
        address,
        &["--lock-delay", "1h", "--wait", "100ms"],
        "true",
        124,
    );
}

fn command_that_cannot_be_run_is_no_crash_and_forgets_none(address: &str) {
    let run = || {
        let mut command = bellwether();
        command.args(["lock", "x", "--connect", address, "--", "/no/such/program"]);
        assert_code(&command.output().unwrap(), 127);
    };
    run();
    assert_eq!(lock(address, &[], TELL, 0), "clean||");
    crash(address, "half");
    run();
    assert!(lock(address, &[], TELL, 0).starts_with("crashed|half|"));
}

fn reader_is_told_and_clears_nothing(address: &str) {
    let write = |script: &str, code| lock(address, &["--write"], script, code);
    let read = |options: &[&str], code| lock(address, &[&["--read"], options].concat(), TELL, code);
    assert_eq!(read(&[], 0), "clean||");
    write("bellwether note half; kill -KILL $$", 137);
    for _ in 0..2 {
        assert!(read(&[], 0).starts_with("crashed|half|"));
        assert_eq!(read(&["--on-crash", "fail"], 122), "");
    }
    assert!(write(TELL, 0).starts_with("crashed|half|"));
    assert_eq!(read(&[], 0), "clean||");
}

fn hold_tells_of_a_crash_too(address: &str) {
    let token: i64 = crash(address, "half").parse().unwrap();
    let hold = |options: &[&str]| {
        let mut command = bellwether();
        command.args(["lock", "x", "--hold", "--connect", address]);
        Running::start_with(command.args(options).stdin(Stdio::piped()))
    };
    let mut refused = hold(&["--on-crash", "fail"]);
    assert_eq!(refused.line(), None);
    assert_eq!(refused.code(), Some(122));
    let mut holder = hold(&["--json"]);
    let line: serde_json::Value = serde_json::from_str(&holder.line().unwrap()).unwrap();
    let previous = &line["previous"];
    assert_eq!(previous["state"], "crashed");
    assert_eq!(previous["token"], token);
    assert_eq!(previous["note"]["text"], "half");
    assert!(previous["who"]["pid"].is_u64(), "{previous}");
    holder.end_input();
    assert_eq!(holder.code(), Some(0));
    // A killed hold is a crash like any other.
    let mut holder = hold(&[]);
    assert!(holder.line().is_some());
    holder.signal(Signal::KILL);
    assert!(lock(address, &[], TELL, 0).starts_with("crashed||"));
}

fn crash_is_reported_even_if_notices_are_silenced(address: &str) {
    for (command, options) in [
        ("lock", &[][..]),
        ("lock", &["--on-crash", "true"]),
        ("elect", &[]),
        ("once", &[]),
    ] {
        crash(address, "half");
        let arguments = [&["-q", command, "x"], options].concat();
        let output = job(address, &arguments, "true").output().unwrap();
        assert_code(&output, 0);
        let said = text(&output.stderr);
        assert!(said.contains("did not finish: killed (SIGKILL)"), "{said}");
    }
    crash(address, "half");
    let mut command = bellwether();
    command.args(["-q", "lock", "x", "--hold", "--connect", address]);
    let mut holder = Running::start_with(command.stdin(Stdio::piped()));
    let said = holder.error_line().unwrap();
    assert!(said.contains("did not finish: killed (SIGKILL)"), "{said}");
}

fn break_of_a_hold_for_a_script_is_told_to_the_next_holder(address: &str) {
    let mut command = bellwether();
    command.args(["lock", "x", "--hold", "--connect", address]);
    let mut holder = Running::start_with(command.stdin(Stdio::piped()));
    assert!(holder.line().is_some());
    break_hold(address, "0s");
    assert_eq!(holder.code(), Some(123));
    assert_broken(&lock(address, &[], "echo $BELLWETHER_PREVIOUS_END", 0));
    assert_eq!(lock(address, &[], TELL, 0), "clean||");
}

fn break_hold(address: &str, grace: &str) {
    let mut command = bellwether();
    command.args(["break", "x", "--yes", "--grace", grace]);
    command.args(["-m", "host goes down", "--connect", address]);
    assert_code(&command.output().unwrap(), 0);
}

/// Asserts how a hold ended, with author and reason.
#[track_caller]
fn assert_broken(told: &str) {
    let by = format!("broken by {} pid ", user_and_host());
    assert!(
        told.starts_with(&by) && told.ends_with(": host goes down"),
        "{told}"
    );
}

fn held_lock_cannot_be_cleared(address: &str) {
    let _holder = holding(address, &["lock", "x"]);
    let clear = bellwether()
        .args(["lock", "x", "--clear", "--connect", address])
        .output()
        .unwrap();
    assert_code(&clear, 1);
    assert!(text(&clear.stderr).contains("/x is held"));
}

fn note_where_none_is_kept_is_1(address: &str) {
    let note = "bellwether note x; echo $?";
    assert_eq!(lock(address, &["--of", "2"], note, 0), "1");
    assert_eq!(lock(address, &["--layout", "curator"], note, 0), "1");
}

fn other_layouts_know_nothing(address: &str) {
    for layout in ["curator", "kazoo"] {
        lock(address, &["--layout", layout], "kill -KILL $$", 137);
        assert_eq!(lock(address, &["--layout", layout], TELL, 0), "unknown||");
    }
}

#[test]
fn note_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = &addresses[0];
    let script = "echo $BELLWETHER_KEEPER; exec tail -f /dev/null";
    let mut holder = Running::start(&mut job(address, &["lock", "x"], script));
    let mut note = bellwether();
    note.args(["note", "I was here"])
        .env("BELLWETHER_KEEPER", holder.line().unwrap())
        .current_dir("/");
    assert_code(&note.output().unwrap(), 0);
    match note.uid(NOBODY).output() {
        Ok(output) => assert_code(&output, 125),
        Err(error) => eprintln!("skipped: others cannot run the program here: {error}"),
    }
}

#[test]
fn note_that_is_too_long_is_2() {
    let output = bellwether()
        .args(["note", &"x".repeat(65 * 1024)])
        .env("BELLWETHER_KEEPER", "bellwether-nobody")
        .output()
        .unwrap();
    assert_code(&output, 2);
}

#[test]
fn note_to_a_keeper_that_is_gone_is_125() {
    let output = bellwether()
        .args(["note", "half"])
        .env("BELLWETHER_KEEPER", "bellwether-nobody")
        .output()
        .unwrap();
    assert_code(&output, 125);
}
