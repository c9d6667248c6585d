//! `bellwether watch`.

use bellwether_testkit::Cut;
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::bellwether::Running;
use crate::support::on_tree::{answer, command, proxy};

on_both_engines! {
    events_come_one_a_line_until_a_signal,
    children_are_told_of_without_recursion,
    node_need_not_exist_yet,
    json_is_one_object_a_line_and_a_count_ends_it,
    what_happens_while_the_connection_is_lost_is_told_afterwards,
    what_happens_while_the_session_is_lost_is_told_afterwards,
}

/// A `watch` command whose watch is armed.
fn watch(address: &str, arguments: &[&str]) -> Running {
    let mut watch = Running::start(&mut command(address, &[&["watch"], arguments].concat()));
    let said = watch.error_line().unwrap();
    assert!(said.starts_with("bellwether: watching /"), "{said}");
    watch
}

fn next(watch: &mut Running) -> String {
    watch.line().unwrap()
}

fn events_come_one_a_line_until_a_signal(address: &str) {
    answer(address, &["create", "-p", "/w"]);
    let mut watch = watch(address, &["--recursive", "/w"]);
    answer(address, &["create", "-p", "/w/a/b"]);
    answer(address, &["set", "/w/a/b", "x"]);
    answer(address, &["rm", "/w/a/b"]);
    answer(address, &["set", "/w", "x"]);
    let lines: Vec<_> = (0..5).map(|_| next(&mut watch)).collect();
    assert_eq!(
        lines,
        [
            "created  /w/a",
            "created  /w/a/b",
            "changed  /w/a/b",
            "deleted  /w/a/b",
            "changed  /w"
        ]
    );
    watch.signal(Signal::TERM);
    assert_eq!(watch.code(), Some(143));
    assert_eq!(watch.line(), None);
}

fn children_are_told_of_without_recursion(address: &str) {
    answer(address, &["create", "-p", "/w"]);
    let mut watch = watch(address, &["/w"]);
    answer(address, &["create", "/w/a"]);
    answer(address, &["set", "/w/a", "not told"]);
    answer(address, &["set", "/w", "told"]);
    answer(address, &["rm", "-r", "-q", "/w"]);
    let lines: Vec<_> = (0..4).map(|_| next(&mut watch)).collect();
    assert_eq!(
        lines,
        ["children /w", "changed  /w", "children /w", "deleted  /w"]
    );
}

fn node_need_not_exist_yet(address: &str) {
    answer(address, &["create", "-p", "/there"]);
    for arguments in [&["/w", "-n", "1"][..], &["--recursive", "/w", "-n", "1"]] {
        let mut watch = watch(address, arguments);
        answer(address, &["create", "/w"]);
        assert_eq!(next(&mut watch), "created  /w");
        assert_eq!(watch.code(), Some(0));
        answer(address, &["rm", "/w"]);
    }
}

fn json_is_one_object_a_line_and_a_count_ends_it(address: &str) {
    answer(address, &["create", "-p", "/w"]);
    let mut watch = watch(address, &["--json", "--count", "2", "/w"]);
    answer(address, &["set", "/w", "1"]);
    answer(address, &["set", "/w", "2"]);
    for _ in 0..2 {
        let event: Value = serde_json::from_str(&next(&mut watch)).unwrap();
        assert_eq!(event["event"], "changed");
        assert_eq!(event["path"], "/w");
        assert_eq!(event["missed"], false);
    }
    assert_eq!(watch.code(), Some(0));
}

fn make_nodes(address: &str) {
    for path in ["/w/gone/too", "/w/same", "/w/set", "/w/again"] {
        answer(address, &["create", "-p", path]);
    }
}

/// Makes a change of each kind, and returns the lines to expect.
fn change_nodes(address: &str) -> [&'static str; 6] {
    answer(address, &["rm", "-r", "-q", "/w/gone"]);
    answer(address, &["set", "/w/set", "x"]);
    answer(address, &["rm", "/w/again"]);
    answer(address, &["create", "/w/again"]);
    answer(address, &["create", "/w/new"]);
    [
        "deleted  /w/gone/too (missed)",
        "deleted  /w/gone (missed)",
        "deleted  /w/again (missed)",
        "created  /w/again (missed)",
        "created  /w/new (missed)",
        "changed  /w/set (missed)",
    ]
}

fn what_happens_while_the_connection_is_lost_is_told_afterwards(address: &str) {
    let runtime = Runtime::new().unwrap();
    let (proxy, through) = proxy(address, &runtime);
    make_nodes(address);
    let mut watch = watch(&through, &["--recursive", "/w"]);
    // An earlier event, to know what was seen.
    answer(address, &["set", "/w/same", "x"]);
    assert_eq!(next(&mut watch), "changed  /w/same");
    for round in 0..2 {
        proxy.refuse(true);
        runtime.block_on(proxy.cut(Cut::Reset));
        assert_eq!(
            watch.error_line().as_deref(),
            Some("bellwether: connection lost")
        );
        let missed = if round == 0 {
            change_nodes(address).to_vec()
        } else {
            vec![]
        };
        proxy.refuse(false);
        let again = format!(
            "bellwether: connected again; {} events missed meanwhile",
            missed.len()
        );
        assert_eq!(watch.error_line(), Some(again));
        for expected in missed {
            assert_eq!(next(&mut watch), expected);
        }
        // And the watch is armed again.
        answer(address, &["set", "/w/new", "x"]);
        assert_eq!(next(&mut watch), "changed  /w/new");
    }
}

fn what_happens_while_the_session_is_lost_is_told_afterwards(address: &str) {
    let runtime = Runtime::new().unwrap();
    let (proxy, through) = proxy(address, &runtime);
    make_nodes(address);
    let mut watch = watch(&through, &["--recursive", "/w", "--session-timeout", "1s"]);
    proxy.refuse(true);
    runtime.block_on(proxy.cut(Cut::Reset));
    assert_eq!(
        watch.error_line().as_deref(),
        Some("bellwether: connection lost")
    );
    assert_eq!(
        watch.error_line().as_deref(),
        Some("bellwether: the session ended")
    );
    let missed = change_nodes(address);
    proxy.refuse(false);
    assert_eq!(
        watch.error_line().as_deref(),
        Some("bellwether: connected again; 6 events missed meanwhile")
    );
    for expected in missed {
        assert_eq!(next(&mut watch), expected);
    }
    answer(address, &["set", "/w/new", "x"]);
    assert_eq!(next(&mut watch), "changed  /w/new");
    watch.signal(Signal::INT);
    assert_eq!(watch.code(), Some(130));
}
