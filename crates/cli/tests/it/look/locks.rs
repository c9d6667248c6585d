//! `bellwether locks`, `why`, `revoke` and `break`.

use std::io::Read;
use std::process::{Command, Stdio};

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::bellwether::{Running, assert_code, text, until, user_and_host};
use crate::support::servers::{Servers, json};

on_local_and_apache! {
    holder_and_waiters_are_shown_with_token_and_message,
    nothing_to_show_is_no_error,
    more_than_can_be_looked_at_shows_what_was_found,
    chain_of_holders_is_followed,
    way_back_to_where_another_holds_too_is_no_circle,
    deadlock_of_three_is_named_and_a_break_ends_it,
    revoke_asks_and_takes_nothing_away,
    script_that_holds_something_is_told_by_a_line,
    script_that_does_not_read_a_request_can_let_go,
    nothing_is_done_that_nobody_agreed_to,
    break_takes_an_item_from_its_consumer,
    log_tells_every_change,
    queue_and_tasks_are_shown_when_the_server_has_reaped_their_empty_directories,
    pid_that_is_shown_takes_signals_for_the_job,
    user_that_is_shown_is_that_of_the_process,
}

fn job(servers: &Servers, path: &str, script: &str) -> Command {
    let mut command = servers.bellwether();
    command
        .args(["lock", "-m", "nightly run", path, "--"])
        .args(["sh", "-c", script]);
    command
}

fn holder(servers: &Servers, path: &str) -> Running {
    let mut holder = Running::start(&mut job(servers, path, "echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

fn waiters(servers: &Servers, path: &str) -> usize {
    let seen = json(&servers.run(&["locks", "--json", path]));
    seen["sights"][0]["waiters"].as_array().map_or(0, Vec::len)
}

fn holder_and_waiters_are_shown_with_token_and_message(servers: &Servers) {
    let _holder = holder(servers, "jobs/nightly");
    let _waiter = Running::start(&mut job(servers, "jobs/nightly", "true"));
    until("it waits", || waiters(servers, "jobs") == 1);
    let seen = json(&servers.run(&["locks", "--json"]));
    let sight = &seen["sights"][0];
    assert_eq!(sight["path"], "/jobs/nightly");
    assert_eq!(sight["recipe"], "lock");
    assert_eq!(sight["layout"], "bellwether");
    let (holder, waiter) = (&sight["holders"][0], &sight["waiters"][0]);
    assert_eq!(holder["who"]["command"], "sh");
    assert!(holder["token"].as_i64() < waiter["token"].as_i64());
    let output = servers.run(&["locks", "jobs"]);
    assert_code(&output, 0);
    let lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    let [title, holds, waits] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(title, "/jobs/nightly  lock, 1 waits");
    let token = holder["token"].to_string();
    assert!(
        holds.starts_with("  holds  ")
            && holds.contains(&format!("{} pid ", user_and_host()))
            && holds.contains(" sh (nightly run), ")
            && holds.ends_with(&format!(", token {token}")),
        "{holds}"
    );
    assert!(waits.starts_with("  waits  "), "{waits}");
    // Below another path there is nothing.
    let elsewhere = json(&servers.run(&["locks", "--json", "other"]));
    assert_eq!(elsewhere["sights"], Value::Array(Vec::new()));
}

fn nothing_to_show_is_no_error(servers: &Servers) {
    let output = servers.run(&["locks"]);
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("no holds, waiters or recipes at /"));
    assert_code(&servers.run(&["why", "jobs"]), 1);
}

fn more_than_can_be_looked_at_shows_what_was_found(servers: &Servers) {
    let _first = holder(servers, "a");
    let _second = holder(servers, "b");
    // The root and one of the two; the same with a chroot on Apache's server.
    let output = servers.run(&["locks", "--max-directories", "2"]);
    assert_code(&output, 0);
    let said = text(&output.stderr);
    assert!(
        said.contains("directories that were not looked at: "),
        "{said}"
    );
    assert!(said.contains("hint: name a path below"), "{said}");
    let seen = json(&servers.run(&["locks", "--json", "--max-directories", "2"]));
    assert!(seen["unexplored"].as_u64() >= Some(1), "{seen}");
    assert_eq!(json(&servers.run(&["locks", "--json"]))["unexplored"], 0);
    // Only the root: an answer of no would be wrong.
    let why = servers.run(&["why", "a", "--max-directories", "1"]);
    assert_code(&why, 125);
    assert!(text(&why.stderr).contains("not everything below / was read"));
    assert_eq!(json(&servers.run(&["why", "--json", "a"]))["unexplored"], 0);
}

/// A job that holds one lock and waits for another, and prints when it has it.
fn holder_that_wants(servers: &Servers, has: &str, wants: &str) -> Running {
    let program = env!("CARGO_BIN_EXE_bellwether");
    let script = format!("echo held; read go; exec {program} lock -q {wants} -- echo got");
    let mut holder = Running::start_with(job(servers, has, &script).stdin(Stdio::piped()));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

fn chain_of_holders_is_followed(servers: &Servers) {
    let _end = holder(servers, "b");
    let mut first = holder_that_wants(servers, "a", "b");
    first.end_input();
    until("it waits", || waiters(servers, "b") == 1);
    let output = servers.run(&["why", "a"]);
    assert_code(&output, 0);
    let said = text(&output.stdout);
    let lines: Vec<_> = said.lines().map(str::trim_start).collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!((lines[0], lines[2]), ("/a  lock", "waits for /b  lock"));
    assert!(lines[1].starts_with("held by ") && lines[3].starts_with("held by "));
    let why = json(&servers.run(&["why", "--json", "a"]));
    let next = &why["holders"][0]["waits_for"][0];
    assert_eq!(
        (&next["path"], &next["circle"]),
        (&"/b".into(), &false.into())
    );
    assert_eq!(next["holders"][0]["waits_for"], Value::Array(Vec::new()));
}

fn way_back_to_where_another_holds_too_is_no_circle(servers: &Servers) {
    let permit = |script: &str| {
        let mut command = servers.bellwether();
        command.args(["lock", "--of", "2", "sem", "--", "sh", "-c", script]);
        Running::start_with(command.stdin(Stdio::piped()))
    };
    let program = env!("CARGO_BIN_EXE_bellwether");
    let mut a = permit(&format!(
        "echo held; read go; exec {program} lock -q y -- true"
    ));
    assert_eq!(a.line().as_deref(), Some("held"));
    let mut c = permit("echo held; exec tail -f /dev/null");
    assert_eq!(c.line().as_deref(), Some("held"));
    let script = format!("echo held; exec {program} lock -q --of 2 sem -- true");
    let mut b = Running::start(&mut job(servers, "y", &script));
    assert_eq!(b.line().as_deref(), Some("held"));
    until("B waits", || waiters(servers, "sem") == 1);
    a.end_input();
    until("A waits", || waiters(servers, "y") == 1);
    let output = servers.run(&["why", "sem"]);
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert!(said.contains("waits for /sem: see above"), "{said}");
    assert!(!said.contains("DEADLOCK"), "{said}");
    let why = json(&servers.run(&["why", "--json", "sem"]));
    let holders = why["holders"].as_array().unwrap();
    let back: Vec<_> = holders
        .iter()
        .map(|holder| &holder["waits_for"][0]["holders"][0]["waits_for"][0])
        .filter(|back| back.is_object())
        .collect();
    assert_eq!(back.len(), 1, "{why}");
    let found = (&back[0]["above"], &back[0]["circle"]);
    assert_eq!(found, (&true.into(), &false.into()), "{why}");
    // C releases, and all of them acquire.
    c.signal(Signal::TERM);
    assert_eq!(b.code(), Some(0));
    assert_eq!(a.code(), Some(0));
}

fn deadlock_of_three_is_named_and_a_break_ends_it(servers: &Servers) {
    let paths = ["dead/a", "dead/b", "dead/c"];
    let mut jobs: Vec<_> = (0..3)
        .map(|one| holder_that_wants(servers, paths[one], paths[(one + 1) % 3]))
        .collect();
    assert_code(&servers.run(&["locks", "dead"]), 0);
    for job in &mut jobs {
        job.end_input();
    }
    until("all wait", || {
        let seen = json(&servers.run(&["locks", "--json", "dead"]));
        let sights = seen["sights"].as_array().unwrap();
        sights.iter().all(|sight| sight["waiters"][0].is_object())
    });
    let output = servers.run(&["locks", "dead"]);
    assert_code(&output, 1);
    let said = text(&output.stdout);
    let named = "deadlock among 3 waiters at /dead/a, /dead/b, /dead/c";
    assert!(said.contains(named), "{said}");
    assert_eq!(said.matches(", blocked by ").count(), 3, "{said}");
    let seen = json(&servers.run(&["locks", "--json"]));
    let circle = seen["deadlocks"][0].as_array();
    assert_eq!(circle.map(Vec::len), Some(3), "{seen}");
    let why = servers.run(&["why", "dead/b"]);
    let said = text(&why.stdout);
    assert!(said.contains("waits for /dead/b: DEADLOCK"), "{said}");

    let output = servers.run(&["break", "--yes", "--grace", "0s", "--json", "dead/a"]);
    assert_code(&output, 0);
    assert_eq!(json(&output)["holders"][0]["end"], "broken");
    let codes: Vec<_> = jobs.iter_mut().map(Running::code).collect();
    assert_eq!(
        codes,
        [Some(123), Some(0), Some(0)],
        "the victim hears `lost`"
    );
    assert!(
        jobs[0]
            .errors()
            .iter()
            .any(|line| line.contains("/dead/a is lost"))
    );
    assert_eq!(jobs[2].line().as_deref(), Some("got"));
    assert_code(&servers.run(&["locks", "dead"]), 0);
}

fn revoke_asks_and_takes_nothing_away(servers: &Servers) {
    let mut holder = holder(servers, "jobs/nightly");
    let output = servers.run(&["revoke", "-y", "-m", "please", "jobs/nightly"]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).starts_with("asked "), "{output:?}");
    let seen = json(&servers.run(&["locks", "--json"]));
    assert_eq!(seen["sights"][0]["holders"][0]["asked_to_let_go"], true);
    assert!(holder.is_running());
    assert!(text(&servers.run(&["locks"]).stdout).contains("asked to release by "));
    let told = holder.error_line().unwrap();
    assert!(
        told.contains("asked to release /jobs/nightly by "),
        "{told}"
    );
    assert!(told.ends_with(": please"), "{told}");
    let node = ["revoke", "-y", "--node", "nobody", "jobs/nightly"];
    assert_code(&servers.run(&node), 1);
}

fn script_that_holds_something_is_told_by_a_line(servers: &Servers) {
    assert_code(&servers.run(&["queue", "put", "q", "x"]), 0);
    for (hold, path, is_json) in [
        (&["lock", "--hold", "x"][..], "x", false),
        (&["lock", "--hold", "--json", "y"], "y", true),
        (&["queue", "take", "--hold", "q"], "q", true),
    ] {
        let mut command = servers.bellwether();
        let mut script = Running::start_with(command.args(hold).stdin(Stdio::piped()));
        assert!(script.line().is_some(), "{hold:?}");
        assert_code(&servers.run(&["revoke", "-y", "-m", "please", path]), 0);
        let line = script.line().unwrap();
        match is_json {
            true => {
                let object: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(object["asked"]["message"], "please", "{object}");
                assert!(object["asked"]["by"]["pid"].is_u64(), "{object}");
                assert_eq!(object["asked"]["grace_ms"], Value::Null, "{object}");
            }
            false => assert!(line.ends_with(": please"), "{line}"),
        }
        let told = script.error_line().unwrap();
        assert!(told.ends_with(": please"), "{told}");
        assert!(script.is_running());
    }
}

fn script_that_does_not_read_a_request_can_let_go(servers: &Servers) {
    assert_code(&servers.run(&["queue", "put", "q", "x"]), 0);
    // More than a pipe holds.
    let message = "please ".repeat(10_000);
    for (hold, path, code) in [
        (&["lock", "--hold", "--json", "x"][..], "x", 0),
        (&["queue", "take", "--hold", "q"], "q", 1),
    ] {
        let (mut lines, stdout) = std::io::pipe().unwrap();
        let mut command = servers.bellwether();
        command.args(hold).stdin(Stdio::piped()).stdout(stdout);
        let mut script = Running::follow(command.stderr(Stdio::piped()));
        let read = lines.read(&mut [0; 4096]).unwrap();
        assert!(read > 0, "{hold:?}");
        assert_code(&servers.run(&["revoke", "-y", "-m", &message, path]), 0);
        until("the script gets the request", || {
            ioctl_fionread(&lines).unwrap() > 0
        });
        let told = script.error_line().unwrap();
        assert!(told.ends_with("please…"), "{told}");
        script.end_input();
        assert_eq!(script.code(), Some(code), "{hold:?}");
    }
}

fn nothing_is_done_that_nobody_agreed_to(servers: &Servers) {
    let mut holder = holder(servers, "x");
    for command in ["revoke", "break"] {
        let output = servers.run(&[command, "x"]);
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains("hint: --yes"));
        assert_code(&servers.run(&[command, "--yes", "y"]), 1);
    }
    assert!(holder.is_running());
    let seen = json(&servers.run(&["locks", "--json"]));
    assert_eq!(seen["sights"][0]["holders"][0]["asked_to_let_go"], false);
}

fn break_takes_an_item_from_its_consumer(servers: &Servers) {
    assert_code(&servers.run(&["queue", "put", "q", "x"]), 0);
    let script = "echo working; exec tail -f /dev/null";
    let mut worker = servers.bellwether();
    worker.args(["queue", "take", "q", "--grace", "100ms", "-m", "slow", "--"]);
    let mut worker = Running::start(worker.args(["sh", "-c", script]));
    assert_eq!(worker.line().as_deref(), Some("working"));
    let seen = text(&servers.run(&["locks"]).stdout);
    assert!(seen.contains(" sh (slow), "), "{seen}");
    let output = servers.run(&["break", "--yes", "--grace", "0s", "--json", "q"]);
    assert_code(&output, 0);
    assert_eq!(json(&output)["holders"][0]["end"], "broken");
    assert_eq!(worker.code(), Some(123));
    assert_eq!(text(&servers.run(&["queue", "take", "q"]).stdout), "x");
}

fn log_tells_every_change(servers: &Servers) {
    let mut first = holder(servers, "x");
    let mut log = Running::start(servers.bellwether().args(["locks", "--watch"]));
    let mut line = || {
        let line = log.line().unwrap();
        let (_, fact) = line.split_once(' ').unwrap();
        fact.to_owned()
    };
    assert!(line().starts_with("/x holds "));
    let second = Running::start(&mut job(servers, "x", "echo held; exec tail -f /dev/null"));
    assert!(line().starts_with("/x waits "));
    first.signal(Signal::TERM);
    first.code();
    let changes = [line(), line()];
    assert!(changes[0].starts_with("/x no more: holds "), "{changes:?}");
    assert!(changes[1].starts_with("/x holds "), "{changes:?}");
    second.signal(Signal::TERM);
    assert!(line().starts_with("/x no more: holds "));
    log.signal(Signal::INT);
    assert_eq!(log.code(), Some(130));
}

fn queue_and_tasks_are_shown_when_the_server_has_reaped_their_empty_directories(servers: &Servers) {
    assert_code(&servers.run(&["queue", "put", "work/queue", "x"]), 0);
    assert_code(&servers.run(&["tasks", "add", "work/tasks", "users"]), 0);
    // As a server does some time after they became empty.
    for place in ["work/queue", "work/tasks"] {
        for directory in text(&servers.run(&["ls", place]).stdout).lines() {
            // A directory that is not empty stays.
            servers.run(&["rm", &format!("{place}/{directory}")]);
        }
        assert_eq!(text(&servers.run(&["ls", place]).stdout), "items\n");
    }
    let seen = json(&servers.run(&["locks", "--json", "work"]));
    let [queue, tasks] = &seen["sights"].as_array().unwrap()[..] else {
        panic!("{seen}");
    };
    assert_eq!(
        (&queue["recipe"], &queue["items"]),
        (&"queue".into(), &1.into())
    );
    assert_eq!(
        (&tasks["recipe"], &tasks["open"]),
        (&"tasks".into(), &1.into())
    );
}

fn pid_that_is_shown_takes_signals_for_the_job(servers: &Servers) {
    let script = "trap 'echo asked; exit 5' TERM; echo held; tail -f /dev/null & wait";
    let mut holder = Running::start(&mut job(servers, "x", script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let seen = json(&servers.run(&["locks", "--json", "x"]));
    let pid = seen["sights"][0]["holders"][0]["who"]["pid"].as_i64();
    let pid = Pid::from_raw(pid.unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(holder.line().as_deref(), Some("asked"));
    assert_eq!(holder.code(), Some(5));
}

fn user_that_is_shown_is_that_of_the_process(servers: &Servers) {
    let mut command = job(servers, "x", "echo held; exec tail -f /dev/null");
    command.env("USER", "mallory").env("LOGNAME", "mallory");
    let mut holder = Running::start(&mut command);
    assert_eq!(holder.line().as_deref(), Some("held"));
    let user = Command::new("id").arg("-un").output().unwrap();
    let seen = json(&servers.run(&["locks", "--json", "x"]));
    let who = &seen["sights"][0]["holders"][0]["who"];
    assert_eq!(who["user"], text(&user.stdout).trim(), "{who}");
}
