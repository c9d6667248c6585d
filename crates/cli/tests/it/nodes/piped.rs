//! Data on stdin, and empty arguments: no piped data is dropped, and nothing is erased by an omission.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::support::bellwether::{Running, assert_code, bellwether, text};
use crate::support::servers::Servers;
use crate::support::shell::Shell;

on_local_and_apache! {
    piped_data_is_read_unless_the_arguments_have_some,
    piped_data_is_read_by_who_stays_if_it_is_asked_for,
    piped_data_that_nobody_asked_for_is_refused_by_who_stays,
}

/// Runs a command to its end, with `data` on its stdin.
fn pipe(servers: &Servers, arguments: &[&str], data: &str) -> Output {
    let mut command = servers.bellwether();
    command.args(arguments).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A refused command does not read it.
    let _ = child.stdin.take().unwrap().write_all(data.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn done(servers: &Servers, arguments: &[&str], data: &str) -> String {
    let output = pipe(servers, arguments, data);
    assert_code(&output, 0);
    text(&output.stdout)
}

fn piped_data_is_read_unless_the_arguments_have_some(servers: &Servers) {
    done(servers, &["create", "-p", "/node"], "first");
    assert_eq!(done(servers, &["get", "/node"], ""), "first");
    done(servers, &["set", "/node"], "second");
    assert_eq!(done(servers, &["get", "/node"], ""), "second");
    done(servers, &["set", "/node", "typed"], "piped");
    assert_eq!(done(servers, &["get", "/node"], ""), "typed");
    done(servers, &["config", "set", "/value"], "piped");
    assert_eq!(done(servers, &["config", "get", "/value"], ""), "piped");
    done(servers, &["queue", "put", "/queue"], "piped");
    assert_eq!(done(servers, &["queue", "peek", "/queue"], ""), "piped");
    let register = ["name", "register", "--lasting", "/names", "depot"];
    done(servers, &register, "piped");
    let resolve = ["name", "resolve", "/names", "depot"];
    assert_eq!(done(servers, &resolve, ""), "piped");
}

fn piped_data_is_read_by_who_stays_if_it_is_asked_for(servers: &Servers) {
    let mut command = servers.bellwether();
    command.args(["group", "join", "/workers", "-", "--name", "one"]);
    let (stdin, mut pipe) = std::io::pipe().unwrap();
    pipe.write_all(b"piped").unwrap();
    drop(pipe);
    let mut member = Running::start_with(command.stdin(stdin));
    assert_eq!(member.line().as_deref(), Some("one"));
    let listed = done(servers, &["group", "ls", "/workers"], "");
    assert_eq!(listed, "one \"piped\"\n");
    assert!(member.is_running());
}

fn piped_data_that_nobody_asked_for_is_refused_by_who_stays(servers: &Servers) {
    for arguments in [
        &["group", "join", "/workers"][..],
        &["name", "register", "/names", "db"],
        &["create", "--ephemeral", "/node"],
    ] {
        let output = pipe(servers, arguments, "piped");
        assert_code(&output, 2);
        let said = text(&output.stderr);
        assert!(said.contains("\nhint: `-` "), "{arguments:?}: {said}");
    }
    assert_eq!(done(servers, &["group", "ls", "/workers"], ""), "");
}

#[test]
fn data_that_is_missing_on_a_terminal_erases_nothing() {
    let mut shell = Shell::start();
    shell.type_line("bellwether create /node kept; echo made");
    shell.until_shown("made\r\n");
    for command in [
        "set /node",
        "config set /node",
        "queue put /queue",
        "create /empty",
        "create -p /empty",
        "create --ephemeral /empty",
        "group join /workers",
        "name register /names db",
        "name register --lasting /names depot",
    ] {
        shell.type_line(&format!("bellwether {command}; echo code=$?"));
        shell.until_shown("the data is missing");
        shell.until_shown("code=2");
    }
    shell.type_line("bellwether stat /empty; echo code=$?");
    shell.until_shown("code=1");
    shell.type_line("bellwether create /empty ''; echo code=$?");
    shell.until_shown("code=0");
    shell.type_line("bellwether get /node; bellwether set /node ''; echo code=$?");
    shell.until_shown("kept\r\ncode=0");
}

#[test]
fn empty_path_and_empty_servers_are_wrong_usage() {
    let refused = |arguments: &[&str], variable: Option<&str>| {
        let mut command = bellwether();
        if let Some(servers) = variable {
            command.env("BELLWETHER_CONNECT", servers);
        }
        let output = command.args(arguments).output().unwrap();
        assert_code(&output, 2);
        text(&output.stderr)
    };
    for arguments in [
        &["ls", ""][..],
        &["rm", "-r", "--yes", ""],
        &["lock", "", "--", "true"],
    ] {
        let said = refused(arguments, None);
        assert!(said.contains("the root is /"), "{said}");
    }
    let lock = ["lock", "x", "--connect", "", "--", "true"];
    assert!(refused(&lock, None).contains("it names no server"));
    assert!(refused(&["ls"], Some("")).contains("it names no server"));
}
