//! `bellwether locks`, `why`, `revoke` and `break`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use bellwether_testkit::{FaultProxy, Op};
use rustix::process::Signal;
use serde_json::Value;

use crate::bellwether::{Running, assert_code, bellwether, text, until};

on_both_engines! {
    holder_and_waiters_are_shown_with_token_and_message,
    nothing_to_show_is_no_error,
    chain_of_holders_is_followed,
    deadlock_of_three_is_named_and_a_break_ends_it,
    revoke_asks_and_takes_nothing_away,
    nothing_is_done_that_nobody_agreed_to,
    log_tells_every_change,
    locks_of_other_libraries_are_seen_for_what_they_are,
    thousand_locks_are_read_with_few_requests_under_way,
}

fn run(address: &str, arguments: &[&str]) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    let mut program = bellwether();
    program.args([command, "--connect", address]).args(rest);
    program.output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn job(address: &str, path: &str, script: &str) -> Command {
    let mut command = bellwether();
    command
        .args(["lock", "-c", address, "-m", "nightly run", path, "--"])
        .args(["sh", "-c", script]);
    command
}

fn holder(address: &str, path: &str) -> Running {
    let mut holder = Running::start(&mut job(address, path, "echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

fn waiters(address: &str, path: &str) -> usize {
    let seen = json(&run(address, &["locks", "--json", path]));
    seen["sights"][0]["waiters"].as_array().map_or(0, Vec::len)
}

fn holder_and_waiters_are_shown_with_token_and_message(address: &str) {
    let _holder = holder(address, "jobs/nightly");
    let _waiter = Running::start(&mut job(address, "jobs/nightly", "true"));
    until("it waits", || waiters(address, "jobs") == 1);
    let seen = json(&run(address, &["locks", "--json"]));
    let sight = &seen["sights"][0];
    assert_eq!(sight["path"], "/jobs/nightly");
    assert_eq!(sight["recipe"], "lock");
    assert_eq!(sight["layout"], "bellwether");
    let (holder, waiter) = (&sight["holders"][0], &sight["waiters"][0]);
    assert_eq!(holder["who"]["command"], "sh");
    assert!(holder["token"].as_i64() < waiter["token"].as_i64());
    let output = run(address, &["locks", "jobs"]);
    assert_code(&output, 0);
    let lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    let [title, holds, waits] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(title, "/jobs/nightly  lock, 1 waits");
    let token = holder["token"].to_string();
    assert!(
        holds.starts_with("  holds  ")
            && holds.contains("(sh: nightly run), ")
            && holds.ends_with(&format!(", token {token}")),
        "{holds}"
    );
    assert!(waits.starts_with("  waits  "), "{waits}");
    // Below another path there is nothing.
    let elsewhere = json(&run(address, &["locks", "--json", "other"]));
    assert_eq!(elsewhere["sights"], Value::Array(Vec::new()));
}

fn nothing_to_show_is_no_error(address: &str) {
    let output = run(address, &["locks"]);
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("nothing is held or waited for at /"));
    assert_code(&run(address, &["why", "jobs"]), 1);
}

/// A job under one lock that wants another, and what it says when it has it.
fn holder_that_wants(address: &str, has: &str, wants: &str) -> Running {
    let program = env!("CARGO_BIN_EXE_bellwether");
    let script =
        format!("echo held; read go; exec {program} lock -q -c {address} {wants} -- echo got");
    let mut holder = Running::start_with(job(address, has, &script).stdin(Stdio::piped()));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

fn chain_of_holders_is_followed(address: &str) {
    let _end = holder(address, "b");
    let mut first = holder_that_wants(address, "a", "b");
    first.end_input();
    until("it waits", || waiters(address, "b") == 1);
    let output = run(address, &["why", "a"]);
    assert_code(&output, 0);
    let said = text(&output.stdout);
    let lines: Vec<_> = said.lines().map(str::trim_start).collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!((lines[0], lines[2]), ("/a  lock", "waits for /b  lock"));
    assert!(lines[1].starts_with("held by ") && lines[3].starts_with("held by "));
    let why = json(&run(address, &["why", "--json", "a"]));
    let next = &why["holders"][0]["waits_for"][0];
    assert_eq!(
        (&next["path"], &next["circle"]),
        (&"/b".into(), &false.into())
    );
    assert_eq!(next["holders"][0]["waits_for"], Value::Array(Vec::new()));
}

fn deadlock_of_three_is_named_and_a_break_ends_it(address: &str) {
    let paths = ["dead/a", "dead/b", "dead/c"];
    let mut jobs: Vec<_> = (0..3)
        .map(|one| holder_that_wants(address, paths[one], paths[(one + 1) % 3]))
        .collect();
    assert_code(&run(address, &["locks", "dead"]), 0);
    for job in &mut jobs {
        job.end_input();
    }
    until("all wait", || {
        let seen = json(&run(address, &["locks", "--json", "dead"]));
        let sights = seen["sights"].as_array().unwrap();
        sights.iter().all(|sight| sight["waiters"][0].is_object())
    });
    let output = run(address, &["locks", "dead"]);
    assert_code(&output, 1);
    let said = text(&output.stdout);
    let named = "deadlock among 3 waiters at /dead/a, /dead/b, /dead/c";
    assert!(said.contains(named), "{said}");
    assert_eq!(said.matches(", held up by ").count(), 3, "{said}");
    let seen = json(&run(address, &["locks", "--json"]));
    let circle = seen["deadlocks"][0].as_array();
    assert_eq!(circle.map(Vec::len), Some(3), "{seen}");
    let why = run(address, &["why", "dead/b"]);
    let said = text(&why.stdout);
    assert!(said.contains("waits for /dead/b: a circle"), "{said}");

    let output = run(
        address,
        &["break", "--yes", "--grace", "0s", "--json", "dead/a"],
    );
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
    assert_code(&run(address, &["locks", "dead"]), 0);
}

fn revoke_asks_and_takes_nothing_away(address: &str) {
    let mut holder = holder(address, "jobs/nightly");
    let output = run(address, &["revoke", "-y", "-m", "please", "jobs/nightly"]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).starts_with("asked "), "{output:?}");
    let seen = json(&run(address, &["locks", "--json"]));
    assert_eq!(seen["sights"][0]["holders"][0]["asked_to_let_go"], true);
    assert!(holder.is_running());
    assert!(text(&run(address, &["locks"]).stdout).contains("asked to let go by "));
    let node = ["revoke", "-y", "--node", "nobody", "jobs/nightly"];
    assert_code(&run(address, &node), 1);
}

fn nothing_is_done_that_nobody_agreed_to(address: &str) {
    let mut holder = holder(address, "x");
    for command in ["revoke", "break"] {
        let output = run(address, &[command, "x"]);
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains("hint: --yes"));
        assert_code(&run(address, &[command, "--yes", "y"]), 1);
    }
    assert!(holder.is_running());
    let seen = json(&run(address, &["locks", "--json"]));
    assert_eq!(seen["sights"][0]["holders"][0]["asked_to_let_go"], false);
}

fn log_tells_every_change(address: &str) {
    let mut first = holder(address, "x");
    let mut log = Running::start(bellwether().args(["locks", "-c", address, "--watch"]));
    let mut line = || {
        let line = log.line().unwrap();
        let (_, fact) = line.split_once(' ').unwrap();
        fact.to_owned()
    };
    assert!(line().starts_with("/x holds "));
    let second = Running::start(&mut job(address, "x", "echo held; exec tail -f /dev/null"));
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

fn locks_of_other_libraries_are_seen_for_what_they_are(address: &str) {
    let (server, chroot) = match address.split_once('/') {
        Some((server, chroot)) => (server, format!("/{chroot}")),
        None => (address, String::new()),
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clients = here.join("tests/clients");
    let mut kazoo = Command::new(here.join("../../.venv/bin/python"));
    kazoo.arg(clients.join("kazoo_holder.py"));
    let mut curator = Command::new("java");
    let jars = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";
    curator.args(["-Xmx128m", "-classpath", jars]);
    curator.arg(clients.join("CuratorHolder.java"));
    let mut holders = [(kazoo, "kazoo"), (curator, "curator")].map(|(mut command, name)| {
        command.args([server, &format!("{chroot}/{name}")]);
        Running::start_with(command.stdin(Stdio::piped()))
    });
    for holder in &mut holders {
        let held = holder.line();
        assert_eq!(held.as_deref(), Some("held"), "{:?}", holder.errors());
    }
    let seen = json(&run(address, &["locks", "--json"]));
    let sights = seen["sights"].as_array().unwrap();
    let sights: Vec<_> = sights
        .iter()
        .map(|sight| {
            let holders = sight["holders"].as_array().unwrap();
            let texts = ["path", "recipe", "layout"].map(|field| sight[field].as_str().unwrap());
            (texts.join(" "), holders.len())
        })
        .collect();
    let expected = [
        "/curator/leader election Curator",
        "/curator/lock lock Curator",
        "/curator/permits semaphore Curator",
        "/curator/shared rwlock Curator",
        "/kazoo/lock lock kazoo",
        "/kazoo/permits semaphore kazoo",
        "/kazoo/shared rwlock kazoo",
    ];
    assert_eq!(sights, expected.map(|sight| (sight.to_owned(), 1)));
    let said = text(&run(address, &["locks"]).stdout);
    assert!(said.contains("/kazoo/lock  lock of kazoo\n"), "{said}");
    assert!(said.contains("\"kazoo's own\", "), "{said}");
    assert!(said.contains("\"curator's own\", "), "{said}");
    for mut holder in holders {
        holder.end_input();
        assert_eq!(holder.code(), Some(0));
    }
}

fn thousand_locks_are_read_with_few_requests_under_way(address: &str) {
    const LOCKS: usize = 1000;
    const DEEP: usize = 11;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.json");
    std::fs::write(&file, many(LOCKS, DEEP)).unwrap();
    let import = run(address, &["import", "many", file.to_str().unwrap()]);
    assert_code(&import, 0);
    let (server, chroot) = address.split_once('/').unwrap_or((address, ""));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(FaultProxy::start(server)).unwrap();
    let through = format!("{}/{chroot}", proxy.connect_string());
    let seen = json(&run(
        through.trim_end_matches('/'),
        &["locks", "--json", "many"],
    ));
    let sights = seen["sights"].as_array().unwrap();
    let waiters = sights
        .iter()
        .map(|sight| sight["waiters"].as_array().unwrap().len());
    assert_eq!((sights.len(), waiters.sum()), (LOCKS, LOCKS * (DEEP - 1)));
    // A list of each directory, and a read of everybody; the session itself takes one more to know the servers.
    assert_eq!(proxy.count(Op::GetChildren2), LOCKS + 1);
    let reads = proxy.count(Op::GetData);
    assert!(
        (LOCKS * DEEP..=LOCKS * DEEP + 1).contains(&reads),
        "{reads}"
    );
    let in_flight = proxy.in_flight_max();
    assert!((2..=128).contains(&in_flight), "{in_flight}");
}

/// An export of locks in which so many stand.
fn many(locks: usize, deep: usize) -> String {
    let acl = serde_json::json!([{"scheme": "world", "id": "anyone", "rights": "cdrwa"}]);
    let node = |path: String, data: &str| serde_json::json!({"path": path, "kind": "persistent", "data": {"text": data}, "acl": acl});
    let mut nodes = vec![node("/".to_owned(), "")];
    for lock in 0..locks {
        nodes.push(node(format!("/{lock:04}"), ""));
        nodes.extend((0..deep).map(|place| {
            let name = format!("lock-{:x}-{place:016x}-{place:010}", lock * deep + place);
            node(
                format!("/{lock:04}/{name}"),
                r#"{"version": 1, "host": "db7"}"#,
            )
        }));
    }
    serde_json::json!({
        "format": "bellwether-export",
        "version": 1,
        "path": "/many",
        "nodes": nodes,
    })
    .to_string()
}
