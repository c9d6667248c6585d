//! What users of other tools type first: `zkCli.sh`, `etcdctl`, `consul`, `kubectl`, `rm` and `xargs`.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::support::bellwether::{assert_code, bellwether, job, serve, text};
use crate::support::servers::Servers;

on_both_engines! {
    put_creates_what_is_missing,
    paths_of_a_subtree_are_listed_and_several_are_deleted,
    items_are_put_from_arguments_lines_and_zero_bytes,
    what_was_made_can_be_removed_by_the_same_command,
    barriers_are_listed,
    note_is_read_from_stdin,
    lock_without_a_command_says_what_is_possible,
}

/// Runs a command with an input.
fn piped(servers: &Servers, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = servers.command(arguments);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn put_creates_what_is_missing(address: &str) {
    let servers = Servers::at(address);
    assert_eq!(servers.done(&["put", "/a/b/c", "one"]), "");
    assert_eq!(servers.done(&["get", "/a/b/c"]), "one");
    servers.done(&["put", "/a/b/c", "two"]);
    assert_eq!(
        servers.object(&["set", "--create", "/a/b/c", "x"])["version"],
        2
    );
    assert_eq!(
        servers.object(&["set", "--create", "/a/d", "x"])["version"],
        0
    );
    // Without it, a node that is missing is an answer of no.
    assert_code(&servers.run(&["set", "/a/e", "x"]), 1);
    let both = ["set", "--create", "--expect", "1", "/a/e", "x"];
    assert_code(&servers.run(&both), 2);
}

fn paths_of_a_subtree_are_listed_and_several_are_deleted(address: &str) {
    let servers = Servers::at(address);
    for path in ["/t/b", "/t/a-b", "/t/a/x", "/t/a/y/z"] {
        servers.done(&["create", "-p", path, ""]);
    }
    let all = "/t/a\n/t/a/x\n/t/a/y\n/t/a/y/z\n/t/a-b\n/t/b\n";
    assert_eq!(servers.done(&["ls", "-R", "/t"]), all);
    assert_eq!(
        servers.object(&["ls", "-R", "/t/a/y"])["paths"][0],
        "/t/a/y/z"
    );
    // One that is missing does not keep the others.
    let output = servers.run(&["rm", "/t/b", "/t/none", "/t/a/x"]);
    assert_code(&output, 1);
    assert!(text(&output.stderr).contains("/t/none"), "{output:?}");
    assert_code(&servers.run(&["rm", "-f", "/t/none", "/t/b"]), 0);
    assert_code(&servers.run(&["rm", "-rf", "/t/none", "/t/a"]), 0);
    assert_eq!(servers.done(&["ls", "-R", "/t"]), "/t/a-b\n");
    // What cannot be deleted is no node that is missing.
    assert_code(&servers.run(&["rm", "-f", "/t"]), 1);
    assert_code(&servers.run(&["rm", "-f", "/"]), 2);
}

fn items_are_put_from_arguments_lines_and_zero_bytes(address: &str) {
    let servers = Servers::at(address);
    let ids = servers.done(&["queue", "put", "q", "a", "b", "c"]);
    assert_eq!(ids.lines().count(), 3);
    assert_code(
        &piped(&servers, &["queue", "put", "q", "--lines"], b"d d\n\ne"),
        0,
    );
    assert_code(
        &piped(&servers, &["queue", "put", "q", "-0"], b"f\nf\0g\0"),
        0,
    );
    assert_code(&piped(&servers, &["queue", "put", "q"], b"h\nh\n"), 0);
    for item in ["a", "b", "c", "d d", "e", "f\nf", "g", "h\nh\n"] {
        assert_eq!(servers.done(&["queue", "take", "--try", "q"]), item);
    }
    for (priority, item) in [("7", "low"), ("-5", "high"), ("0", "middle")] {
        servers.done(&["queue", "put", "--priority", priority, "ranked", item]);
    }
    for item in ["high", "middle", "low"] {
        assert_eq!(servers.done(&["queue", "take", "--try", "ranked"]), item);
    }
    let output = servers.run(&["queue", "put", "q", "a", "b", "--json"]);
    let lines = text(&output.stdout);
    let path =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].clone();
    let paths: Vec<_> = lines.lines().map(path).collect();
    assert_eq!(paths, ["/q", "/q"]);
}

fn what_was_made_can_be_removed_by_the_same_command(address: &str) {
    let servers = Servers::at(address);
    servers.done(&["config", "set", "c/x", "1"]);
    servers.done(&["config", "rm", "c/x"]);
    assert_code(&servers.run(&["config", "get", "c/x"]), 1);
    assert_code(&servers.run(&["config", "rm", "c/x"]), 1);
    servers.done(&["name", "register", "--lasting", "n", "depot", "1"]);
    servers.done(&["name", "unregister", "n", "depot"]);
    assert_code(&servers.run(&["name", "resolve", "n", "depot"]), 1);
    assert_code(&servers.run(&["name", "unregister", "n", "depot"]), 1);
    let id = servers.done(&["tx", "begin", "t", "here", "away"]);
    let id = id.trim();
    let early = servers.run(&["tx", "forget", "t", id]);
    assert_code(&early, 1);
    assert!(text(&early.stderr).contains("hint: --force"), "{early:?}");
    assert_eq!(
        servers.done(&["tx", "forget", "--force", "t", id]),
        "abort\n"
    );
    servers.done(&["tx", "applied", "t", id, "here"]);
    servers.done(&["tx", "applied", "t", id, "away"]);
    assert_code(&servers.run(&["tx", "ls", "t", id]), 1);
}

fn barriers_are_listed(address: &str) {
    let servers = Servers::at(address);
    servers.done(&["barrier", "set", "b/one", "-m", "why"]);
    servers.done(&["barrier", "set", "b/two"]);
    servers.done(&["barrier", "lift", "b/two"]);
    let list = servers.done(&["barrier", "ls", "b"]);
    assert!(
        list.starts_with("/b/one  set by ") && list.contains("(why)"),
        "{list}"
    );
    assert_eq!(list.lines().count(), 1);
    let object = servers.object(&["barrier", "ls"]);
    assert_eq!(object["barriers"][0]["path"], "/b/one");
    assert_eq!(object["barriers"][0]["set_by"]["message"], "why");
}

fn note_is_read_from_stdin(address: &str) {
    let script = "echo copied 3 of 5 | bellwether note -; kill -9 $$";
    assert_code(&job(address, &["lock", "x"], script).output().unwrap(), 137);
    let told = "echo \"$BELLWETHER_PREVIOUS_NOTE\"";
    let next = job(address, &["lock", "x"], told).output().unwrap();
    assert_eq!(text(&next.stdout), "copied 3 of 5\n");
}

fn lock_without_a_command_says_what_is_possible(address: &str) {
    let servers = Servers::at(address);
    let output = servers.run(&["lock", "x"]);
    assert_code(&output, 2);
    let told = text(&output.stderr);
    assert!(
        told.contains("hint: `lock PATH -- COMMAND`") && told.contains("--hold"),
        "{told}"
    );
    // As for `flock`; what could be a server is not run.
    assert_eq!(
        servers.done(&["lock", "x", "-c", "echo one; echo two"]),
        "one\ntwo\n"
    );
    assert_code(&servers.run(&["lock", "-n", "x", "-c", "/bin/false"]), 1);
}

#[test]
fn server_listens_at_a_name_and_its_folder_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = bellwether();
    command
        .args(["serve", "--listen", "localhost:0", "--data"])
        .arg(&data);
    let (_server, addresses) = serve(&mut command);
    assert!(addresses[0].starts_with("127.0.0.1:"), "{addresses:?}");
    Servers::at(&addresses[0]).done(&["put", "/made", "x"]);
    let read = |arguments: &[&str]| {
        let output = bellwether().args(arguments).arg(&data).output().unwrap();
        assert_code(&output, 0);
        (text(&output.stdout), text(&output.stderr))
    };
    let (log, which) = read(&["log"]);
    assert!(
        log.contains("/made") && which.contains("version-2/log."),
        "{log} {which}"
    );
    let (_, which) = read(&["snapshot"]);
    assert!(which.contains("version-2/snapshot."), "{which}");
    let empty = bellwether().arg("log").arg(folder.path()).output().unwrap();
    assert_code(&empty, 125);
    let told = text(&empty.stderr);
    assert!(told.contains("there is no file log.*"), "{told}");
}

#[test]
fn version_is_printed_by_a_command_too() {
    let output = |word| bellwether().arg(word).output().unwrap();
    assert_code(&output("version"), 0);
    assert_eq!(output("version").stdout, output("--version").stdout);
}
