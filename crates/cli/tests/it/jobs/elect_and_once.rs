//! `bellwether elect`, `rendezvous` and `once`.

use std::path::PathBuf;
use std::process::Command;

use bellwether_testkit::Cut;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::bellwether::{Running, assert_code, bellwether, holding, job, text};
use crate::support::line::{Line, through_proxy};

on_both_engines! {
    leader_runs_and_the_next_follows_when_it_ends,
    leader_that_is_deposed_stands_again,
    leader_whose_session_is_gone_stands_again,
    leader_is_gone_before_the_next_leads,
    leader_that_was_told_to_end_does_not_stand_again,
    leader_says_what_it_stands_for,
    rendezvous_begins_and_ends_together,
    rendezvous_that_not_all_come_to_is_124,
    rendezvous_of_another_size_is_2,
    rendezvous_has_rounds,
    once_is_run_once_by_one_of_many,
    once_is_taken_again_after_a_failure_and_after_a_crash,
    once_that_waits_ends_when_another_is_done,
    once_waits_for_a_limited_time,
    exit_codes_are_those_of_every_job,
}

fn leader_runs_and_the_next_follows_when_it_ends(address: &str) {
    let mut first = holding(address, &["elect", "e"]);
    let script = "echo $BELLWETHER_PATH $BELLWETHER_PREVIOUS; exit 5";
    let mut second = Running::start(&mut job(address, &["elect", "e"], script));
    let told = second.error_line().unwrap();
    assert!(
        told.contains("waiting for /e: next in line, led by"),
        "{told}"
    );
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(143));
    // That killed it.
    assert_eq!(second.line().as_deref(), Some("/e crashed"));
    assert_eq!(second.code(), Some(5));
    let third = job(address, &["elect", "e"], script).output().unwrap();
    assert_eq!(text(&third.stdout), "/e clean\n");
}

fn leader_that_is_deposed_stands_again(address: &str) {
    stands_again(address, |line| line.delete());
}

fn leader_whose_session_is_gone_stands_again(address: &str) {
    stands_again(address, |line| line.end_session());
}

fn stands_again(address: &str, disturb: impl FnOnce(&Line<'_>)) {
    let script = "echo $BELLWETHER_TOKEN; exec tail -f /dev/null";
    let mut leader = Running::start(&mut job(address, &["elect", "e"], script));
    let first: i64 = leader.line().unwrap().parse().unwrap();
    disturb(&Line::at(address, "/e"));
    let second: i64 = leader.line().unwrap().parse().unwrap();
    assert!(first < second, "{first} {second}");
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), Some(143));
}

fn leader_is_gone_before_the_next_leads(address: &str) {
    let folder = TempDir::new().unwrap();
    let (runtime, proxy, through) = through_proxy(address);
    // It ignores SIGTERM, and so does its child.
    let script = "exec 9>alive; flock -n 9 || exit 99; trap '' TERM; echo leads; tail -f /dev/null; echo never";
    let arguments = ["elect", "e", "--session-timeout", "6s"];
    let mut leader = Running::start(job(&through, &arguments, script).current_dir(&folder));
    assert_eq!(leader.line().as_deref(), Some("leads"));
    let script = "flock -n alive true && echo free; exec tail -f /dev/null";
    let mut next = Running::start(job(address, &["elect", "e"], script).current_dir(&folder));
    assert!(next.error_line().is_some());
    proxy.refuse(true);
    runtime.block_on(proxy.cut(Cut::Reset));
    assert_eq!(next.line().as_deref(), Some("free"), "{:?}", next.errors());
    // It is a candidate again when it can, and leads when the other is gone.
    proxy.refuse(false);
    next.signal(Signal::TERM);
    assert_eq!(next.code(), Some(143));
    let again = leader.line();
    assert_eq!(again.as_deref(), Some("leads"), "{:?}", leader.errors());
}

fn leader_says_what_it_stands_for(address: &str) {
    let _leader = holding(
        address,
        &["elect", "e", "--value", "10.0.0.7:8080", "-m", "main"],
    );
    let contenders = Line::at(address, "/e").contenders();
    let [contender] = &contenders[..] else {
        panic!("{contenders:?}")
    };
    let who: serde_json::Value = serde_json::from_slice(&contender.data).unwrap();
    assert_eq!(who["value"], "10.0.0.7:8080");
    assert_eq!(who["message"], "main");
}

fn fifo(folder: &TempDir) -> PathBuf {
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    fifo
}

fn rendezvous(address: &str, script: &str) -> Command {
    job(address, &["rendezvous", "r", "--size", "3"], script)
}

fn rendezvous_begins_and_ends_together(address: &str) {
    let script = "echo begun; read end <&3; exit 4";
    let folder = TempDir::new().unwrap();
    let fifo = fifo(&folder);
    let script = format!("exec 3<>{}; {script}", fifo.display());
    let mut slow = Running::start(&mut rendezvous(address, &script));
    let told = slow.error_line().unwrap();
    assert!(
        told.contains("waiting for others at /r: 1 of 3 have arrived"),
        "{told}"
    );
    let mut quick = Running::start(&mut rendezvous(address, "echo begun"));
    assert!(quick.error_line().unwrap().contains("2 of 3 have arrived"));
    let mut last = Running::start(&mut rendezvous(address, "echo begun; exit 6"));
    for one in [&mut slow, &mut quick, &mut last] {
        assert_eq!(one.line().as_deref(), Some("begun"));
    }
    // Two have ended, and wait for the third.
    let waits = |line: &str| line.contains("waiting for the others at /r to end: 1 of 3");
    assert!(std::iter::from_fn(|| last.error_line()).any(|line| waits(&line)));
    assert!(last.is_running() && quick.is_running());
    std::fs::write(&fifo, "end\n").unwrap();
    assert_eq!(last.code(), Some(6));
    assert_eq!(quick.code(), Some(0));
    assert_eq!(slow.code(), Some(4));
}

fn leader_that_was_told_to_end_does_not_stand_again(address: &str) {
    // It is slow to end, and loses the leadership meanwhile.
    let script = "(trap '' TERM; exec tail -f /dev/null) & trap 'echo told' TERM
        echo leads; while :; do wait; done";
    let arguments = ["elect", "e", "--grace", "100ms"];
    let mut leader = Running::start(&mut job(address, &arguments, script));
    assert_eq!(leader.line().as_deref(), Some("leads"));
    leader.signal(Signal::TERM);
    assert_eq!(leader.line().as_deref(), Some("told"));
    Line::at(address, "/e").delete();
    assert_eq!(leader.code(), Some(143), "{:?}", leader.errors());
}

fn rendezvous_that_not_all_come_to_is_124(address: &str) {
    // Long enough to connect and to enter: a later caller sees the size that it stored.
    let arguments = ["rendezvous", "r", "--size", "2", "--wait", "2s"];
    let output = job(address, &arguments, "echo ran").output().unwrap();
    assert_code(&output, 124);
    assert_eq!(text(&output.stdout), "");
    let mut waiter = Running::start(&mut rendezvous(address, "true"));
    assert_eq!(waiter.code(), Some(2), "{:?}", waiter.errors());
}

fn rendezvous_of_another_size_is_2(address: &str) {
    let mut first = Running::start(&mut rendezvous(address, "true"));
    assert!(first.error_line().is_some());
    let arguments = ["rendezvous", "r", "--size", "2"];
    assert_code(&job(address, &arguments, "true").output().unwrap(), 2);
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(143));
}

fn rendezvous_has_rounds(address: &str) {
    for round in 0..2 {
        let arguments = ["rendezvous", "r", "--size", "1"];
        let output = job(address, &arguments, "echo $BELLWETHER_ROUND").output();
        assert_eq!(text(&output.unwrap().stdout), format!("{round}\n"));
    }
}

fn once(address: &str, script: &str) -> Command {
    job(address, &["once", "o"], script)
}

fn once_is_run_once_by_one_of_many(address: &str) {
    let mut all: Vec<_> = (0..6)
        .map(|_| Running::start(&mut once(address, "echo ran")))
        .collect();
    let mut ran = 0;
    for one in &mut all {
        assert_eq!(one.code(), Some(0), "{:?}", one.errors());
        ran += std::iter::from_fn(|| one.line()).count();
    }
    assert_eq!(ran, 1);
    let late = once(address, "echo ran").output().unwrap();
    assert_code(&late, 0);
    assert_eq!(text(&late.stdout), "");
    let told = text(&late.stderr);
    assert!(told.contains("/o succeeded already, at 20"), "{told}");
    // Deleting its record makes the server forget it.
    let forget = bellwether()
        .args(["rm", "o/done", "--connect", address])
        .output();
    assert_code(&forget.unwrap(), 0);
    let again = once(address, "echo ran").output().unwrap();
    assert_eq!(text(&again.stdout), "ran\n");
}

fn once_is_taken_again_after_a_failure_and_after_a_crash(address: &str) {
    let failed = once(address, "echo $BELLWETHER_PREVIOUS; exit 4")
        .output()
        .unwrap();
    assert_code(&failed, 4);
    assert_eq!(text(&failed.stdout), "clean\n");
    let script = "bellwether note half; kill -KILL $$";
    assert_code(&once(address, script).output().unwrap(), 137);
    let script = "echo $BELLWETHER_PREVIOUS $BELLWETHER_PREVIOUS_NOTE";
    let done = once(address, script).output().unwrap();
    assert_code(&done, 0);
    assert_eq!(text(&done.stdout), "crashed half\n");
    assert_eq!(text(&once(address, script).output().unwrap().stdout), "");
}

fn once_that_waits_ends_when_another_is_done(address: &str) {
    let folder = TempDir::new().unwrap();
    let fifo = fifo(&folder);
    let script = format!("echo held; read end <{}", fifo.display());
    let mut worker = Running::start(&mut once(address, &script));
    assert_eq!(worker.line().as_deref(), Some("held"));
    let mut waiters: Vec<_> = (0..3)
        .map(|_| Running::start(&mut once(address, "echo ran")))
        .collect();
    for waiter in &mut waiters {
        let told = waiter.error_line().unwrap();
        assert!(told.contains("waiting for /o"), "{told}");
    }
    std::fs::write(&fifo, "end\n").unwrap();
    assert_eq!(worker.code(), Some(0));
    for waiter in &mut waiters {
        assert_eq!(waiter.code(), Some(0));
        assert_eq!(waiter.line(), None);
    }
}

fn once_waits_for_a_limited_time(address: &str) {
    let _worker = holding(address, &["once", "o"]);
    let arguments = ["once", "o", "--wait", "100ms", "-E", "9"];
    assert_code(&job(address, &arguments, "true").output().unwrap(), 9);
}

fn exit_codes_are_those_of_every_job(address: &str) {
    for arguments in [
        &["elect", "e"][..],
        &["rendezvous", "r", "--size", "1"],
        &["once", "o"],
    ] {
        let run = |program: &[&str]| {
            let mut command = bellwether();
            command.args(arguments).args(["--connect", address, "--"]);
            command.args(program).output().unwrap()
        };
        assert_code(&run(&["/no/such/program"]), 127);
        assert_code(&run(&["/"]), 126);
        assert_code(&run(&["sh", "-c", "exit 7"]), 7);
        assert_code(&run(&["sh", "-c", "kill -KILL $$"]), 137);
        let mut running = holding(address, arguments);
        running.signal(Signal::TERM);
        assert_eq!(running.code(), Some(143), "{arguments:?}");
    }
}
