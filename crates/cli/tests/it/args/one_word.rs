//! Words that mean the same for every command, and older words that still work.

use crate::support::bellwether::{Running, assert_code, holding, job, text};
use crate::support::servers::Servers;

on_both_engines! {
    nothing_waits_with_try_and_all_wait_for_a_limited_time,
    limit_of_a_candidate_ends_with_its_first_turn,
    leader_is_awaited,
    older_words_work_with_a_hint,
}

fn nothing_waits_with_try_and_all_wait_for_a_limited_time(address: &str) {
    let servers = Servers::at(address);
    let _lock = holding(address, &["lock", "l"]);
    let _leader = holding(address, &["elect", "e"]);
    let _once = holding(address, &["once", "o"]);
    servers.done(&["barrier", "set", "b"]);
    let id = servers.done(&["tx", "begin", "t", "site", "--deadline", "1h"]);
    for (command, job) in [
        (&["lock", "l"][..], &["true"][..]),
        (&["lock", "l", "--hold"], &[]),
        (&["elect", "e"], &["true"]),
        (&["once", "o"], &["true"]),
        (&["barrier", "wait", "b"], &[]),
        (&["tx", "wait", "t", id.trim()], &[]),
        (&["queue", "take", "q"], &["true"]),
        (&["queue", "take", "q"], &[]),
    ] {
        for limit in [
            &["-n"][..],
            &["--try"],
            &["-w", "100ms"],
            &["--wait", "0.1"],
        ] {
            let limited = [command, limit, job].concat();
            assert_eq!(
                servers.run(&limited).status.code(),
                Some(124),
                "{limited:?}"
            );
            let limited = [command, limit, &["-E", "7"], job].concat();
            assert_eq!(servers.run(&limited).status.code(), Some(7), "{limited:?}");
        }
    }
    // Nothing to wait for.
    assert_code(&servers.run(&["elect", "--try", "free", "true"]), 0);
    assert_code(&servers.run(&["once", "--try", "free", "true"]), 0);
    assert_code(&servers.run(&["barrier", "wait", "--try", "free"]), 0);
    servers.done(&["tx", "vote", "t", id.trim(), "site", "commit"]);
    servers.done(&["tx", "decide", "t", id.trim()]);
    assert_eq!(
        servers.done(&["tx", "wait", "--try", "t", id.trim()]),
        "commit\n"
    );
}

fn limit_of_a_candidate_ends_with_its_first_turn(address: &str) {
    let script = "echo led; exec tail -f /dev/null";
    let mut leader = Running::start(&mut job(address, &["elect", "--try", "e"], script));
    assert_eq!(leader.line().as_deref(), Some("led"));
    let stop = Servers::at(address).run(&["break", "--yes", "--grace", "1s", "e"]);
    assert_code(&stop, 0);
    assert_eq!(leader.line().as_deref(), Some("led"));
}

fn leader_is_awaited(address: &str) {
    let servers = Servers::at(address);
    assert_code(&servers.run(&["leader", "e", "--wait", "100ms"]), 124);
    let mut waiting = servers.staying(&["leader", "e", "--wait", "60s", "--value"]);
    let _leader = holding(address, &["elect", "--value", "here", "e"]);
    assert_eq!(waiting.line().as_deref(), Some("here"));
    assert_eq!(waiting.code(), Some(0));
    assert_code(&servers.run(&["leader", "e", "--wait", "0"]), 0);
}

fn older_words_work_with_a_hint(address: &str) {
    let servers = Servers::at(address);
    servers.done(&["create", "-p", "n", ""]);
    servers.done(&["tasks", "add", "t", "status"]);
    for (arguments, code, hint) in [
        (&["set", "n", "x", "--version", "0"][..], 0, "--expect"),
        (&["set", "n", "x", "--version=0"], 1, "--expect"),
        (
            &["config", "set", "n", "x", "--version", "9"],
            1,
            "--expect",
        ),
        (&["queue", "dead", "q", "--revive", "all"], 0, "--retry"),
        (&["tasks", "status", "t"], 1, "ls"),
        (&["tx", "status", "x"], 0, "ls"),
        (&["rm", "n", "--version", "1"], 0, "--expect"),
    ] {
        let output = servers.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {output:?}"
        );
        let said = text(&output.stderr);
        let hint = format!("is spelled `{hint}` now\n");
        assert!(said.contains(&hint), "{arguments:?}: {said}");
        let quiet = servers.run(&[arguments, &["--quiet"]].concat());
        assert!(!text(&quiet.stderr).contains("spelled"), "{quiet:?}");
    }
    // A path is no spelling.
    let output = servers.run(&["tasks", "ls", "status"]);
    assert_eq!(text(&output.stderr), "");
}
