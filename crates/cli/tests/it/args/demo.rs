//! `bellwether demo`: what it shows, and that it leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::bellwether::{Running, assert_code, bellwether, text, user_and_host};
use crate::support::home::processes_that_name;
use crate::support::shell::Shell;

/// Lines of the tour in their order, with other lines between them. `N` stands for any number.
const ESSENTIAL: &str = "\
== A lock, and a waiter ==
$ bellwether barrier set gate
$ bellwether lock deploy -m 'release N.N' -- sh -c 'echo \"deploying N.N under token $BELLWETHER_TOKEN\"; bellwether barrier wait gate; echo deployed N.N' &
  [N] deploying N.N under token N
$ bellwether lock deploy -m 'release N.N' -- sh -c 'echo \"deploying N.N under token $BELLWETHER_TOKEN\"' &
$ bellwether locks
  /deploy  lock, N waits
    holds  USER@HOST pid N sh (release N.N), Ns, token N
    waits  USER@HOST pid N sh (release N.N), Ns
$ bellwether barrier lift gate
  [N] deployed N.N
  [N] deploying N.N under token N
== A crash ==
  [N] copied N tables
$ kill -N N
  bellwether: USER@HOST pid N sh held /backup before and did not finish: killed with its bellwether process Ns ago; its last note: \"table N of N\"
  previous holder: crashed, at table N of N
== An election ==
  [N] N.N.N.N leads
$ bellwether leader scheduler --value
  N.N.N.N:N
$ kill -N N
  [N] N.N.N.N leads
$ bellwether leader scheduler --value
  N.N.N.N:N
== A queue, and a dead letter ==
$ bellwether queue put mails alice bob@nowhere
  sent to alice
  no such address: bob@nowhere
  exit code N
$ bellwether queue dead mails
$ bellwether queue dead mails --retry all
  sent to bob@nowhere
That was the tour. Its server stops now, and its folder is deleted.";

/// The tour, in a folder for temporary files.
fn demo(folder: &Path) -> Command {
    let mut command = bellwether();
    command.arg("demo").env("TMPDIR", folder);
    command.stdin(Stdio::null());
    command
}

/// Neither a process nor a file of a tour.
#[track_caller]
fn assert_nothing_left(folder: &Path) {
    assert_eq!(processes_that_name(folder), []);
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn tour_shows_its_commands_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path())
        .args(["--pace", "0"])
        // Settings of the user do not count.
        .env("BELLWETHER_CONNECT", "127.0.0.1:1")
        .env("BELLWETHER_TLS", "true")
        .env("BELLWETHER_HELD", "1")
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
    let said = steady(&text(&output.stdout));
    let mut lines = said.lines();
    for essential in ESSENTIAL.lines() {
        assert!(
            lines.any(|line| line == essential),
            "no {essential:?} in its place: {said}"
        );
    }
    assert_nothing_left(folder.path());
}

#[test]
fn link_to_the_dashboard_is_printed_before_the_tour() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path())
        .args(["--dashboard", "--pace", "0"])
        .output()
        .unwrap();
    assert_code(&output, 0);
    let said = text(&output.stderr);
    let link = "bellwether: log in at http://127.0.0.1:";
    assert!(said.contains(link) && said.contains("/#token="), "{said}");
    assert_nothing_left(folder.path());
}

#[test]
fn closed_pipe_ends_the_tour() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = demo(folder.path());
    let status = command.args(["--pace", "0"]).stdout(writer).status();
    assert!(status.unwrap().success());
    assert_nothing_left(folder.path());
}

#[test]
fn signal_ends_the_tour_without_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Running::start(demo(folder.path()).args(["--pace", "1h"]));
    while !demo.line().expect("a command").starts_with("$ ") {}
    demo.signal(Signal::INT);
    assert_eq!(demo.code(), Some(130));
    assert_nothing_left(folder.path());
}

/// At a pause, with a job that runs.
#[test]
fn enter_goes_on_and_an_interrupt_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::start();
    let run = format!(
        "TMPDIR={} bellwether demo --pace 1h",
        folder.path().display()
    );
    shell.run(&run);
    shell.until_shown("barrier set gate");
    shell.press("\n");
    shell.until_shown("[1] deploying 1.4 under token");
    shell.press("\x03");
    shell.until_shown("code=130");
    assert_nothing_left(folder.path());
}

/// The lines without what differs between runs: numbers, the user and the host.
fn steady(transcript: &str) -> String {
    let mut steadied = String::new();
    for c in transcript.replace(&user_and_host(), "USER@HOST").chars() {
        match c.is_ascii_digit() {
            true if steadied.ends_with('N') => {}
            true => steadied.push('N'),
            false => steadied.push(c),
        }
    }
    steadied
}
