//! Answers for scripts: all commands use the same format and exit code for the same thing.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::bellwether::{Running, assert_code, text, until};
use crate::support::servers::Servers;

on_local_and_apache! {
    same_things_have_the_same_shape,
    same_reasons_have_the_same_code,
}

fn same_things_have_the_same_shape(servers: &Servers) {
    // A dead letter that is listed, retried or deleted.
    let take = ["queue", "take", "q", "--attempts", "1", "--", "false"];
    assert_code(&servers.run(&["queue", "put", "q", "poison"]), 0);
    assert_code(&servers.run(&take), 1);
    let listed = servers.object(&["queue", "dead", "q"]);
    let revived = servers.object(&["queue", "dead", "q", "--retry", "all"]);
    assert_eq!(listed, revived);
    assert_code(&servers.run(&take), 1);
    let forgotten = servers.object(&["queue", "dead", "q", "--forget", "all"]);
    assert_eq!(listed["letters"][0]["id"], forgotten["letters"][0]["id"]);
    let none = servers.object(&["queue", "dead", "q", "--forget", "all"]);
    assert_eq!(none["letters"], json!([]));

    // A vote, when it is cast and when it is shown.
    let begin = ["tx", "begin", "pay", "payer", "--id", "7"];
    assert_code(&servers.run(&begin), 0);
    let vote = ["tx", "vote", "pay", "7", "payer", "abort", "--reason", "no"];
    let cast = servers.object(&vote);
    let seen = servers.object(&["tx", "ls", "pay", "7"]);
    let seen = &seen["transactions"][0]["sites"][0];
    for vote in [&cast, seen] {
        let said = (&vote["site"], &vote["vote"], &vote["reason"]);
        assert_eq!(said, (&json!("payer"), &json!("abort"), &json!("no")));
    }

    // The crashed holder, as shown to observers and to the next holder.
    let mut holder = servers.bellwether();
    holder.args(["lock", "x", "--session-timeout", "4s", "--"]);
    let script = "echo held; exec tail -f /dev/null";
    let mut holder = Running::start(holder.args(["sh", "-c", script]));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder.signal(Signal::KILL);
    let mut seen = Value::Null;
    until("the crash is seen", || {
        let locks = servers.object(&["locks", "x"]);
        // During the end of a hold, neither the hold nor the crash may be visible.
        let who = locks.pointer("/sights/0/crash/who");
        seen = who.cloned().unwrap_or_default();
        seen.is_object()
    });
    let told = servers.object(&["lock", "x", "--hold"]);
    assert_eq!(told["previous"]["who"], seen);
}

fn same_reasons_have_the_same_code(servers: &Servers) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let large = file("large", &"x".repeat(2_000_000));
    let large_values = file(
        "large.json",
        &json!({"a": "x".repeat(2_000_000)}).to_string(),
    );
    let bad_values = file("bad.json", &json!({"a/b": "x"}).to_string());
    for (code, arguments) in [
        // An invalid name is wrong usage.
        (2, &["tasks", "add", "t", "a/b"][..]),
        (2, &["tasks", "add", "t", "good", ".."]),
        (2, &["group", "join", "g", "--name", "a/b"]),
        (2, &["group", "join", "g", "--name", ""]),
        (2, &["name", "register", "n", "a/b"]),
        (2, &["name", "register", "n", "--lasting", "a\tb"]),
        (2, &["name", "resolve", "n", "a/b"]),
        (2, &["config", "import", "c", &bad_values]),
        (2, &["tx", "begin", "pay", "payer", "--id", "a/b"]),
        (2, &["tx", "ls", "pay", "a/b"]),
        (
            2,
            &[
                "ensemble", "--data", "d", "--into", "i", "zk1", "zk2", "ZK1",
            ],
        ),
        (
            2,
            &[
                "ensemble",
                "--data",
                "d",
                "--into",
                "i",
                "a",
                "b:2181:1:2",
                "a:2182:2888:5",
            ],
        ),
        // Data that is too large is refused with exit code 1.
        (1, &["queue", "put", "q", "--file", &large]),
        (1, &["config", "set", "c", "--file", &large]),
        (1, &["config", "import", "c", &large_values]),
    ] {
        let output = servers.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    }
    // Nothing was done in part.
    assert_code(&servers.run(&["tasks", "ls", "t"]), 0);
}
