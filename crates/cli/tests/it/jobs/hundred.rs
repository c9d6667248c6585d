//! A hundred commands that contend for the same lock.

use std::process::{Command, Stdio};

use bellwether_testkit::Op;
use tempfile::TempDir;

use crate::support::bellwether::{Running, apache, bellwether, job, serve, until};
use crate::support::home::Home;
use crate::support::line::{Line, through_proxy};

const COMMANDS: usize = 100;

#[test]
fn hundred_commands_on_a_server_are_served_in_order_and_wake_one_at_a_time() {
    // They all connect from one address.
    let (_server, addresses) = serve(bellwether().args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--max-connections-per-address",
        "0",
    ]));
    wake_one_at_a_time(&addresses[0]);
}

#[test]
fn hundred_commands_on_apache_are_served_in_order_and_wake_one_at_a_time() {
    let (_server, address) = apache();
    wake_one_at_a_time(&address);
}

#[test]
fn hundred_commands_on_the_local_server_are_served_in_order() {
    let home = Home::new();
    let folder = TempDir::new().unwrap();
    let mut all: Vec<_> = (0..COMMANDS)
        .map(|_| {
            let mut command = contender("local", &folder);
            Running::start(command.envs([home.variable()]))
        })
        .collect();
    assert_served_in_order(&mut all, &folder);
}

/// Starts them while another client holds the lock, and counts the events of their sessions.
fn wake_one_at_a_time(address: &str) {
    let mut first = bellwether();
    first.args(["lock", "x", "--hold", "--connect", address]);
    let mut first = Running::start_with(first.stdin(Stdio::piped()));
    assert!(first.line().is_some());
    let (_runtime, proxy, through) = through_proxy(address);
    let folder = TempDir::new().unwrap();
    let mut all: Vec<_> = (0..COMMANDS)
        .map(|_| Running::start(&mut contender(&through, &folder)))
        .collect();
    let line = Line::at(address, "/x");
    until("all are in line", || {
        line.contenders().len() == COMMANDS + 1
    });
    assert_eq!(proxy.events(), 0, "newcomers wake no waiter");
    first.end_input();
    assert_served_in_order(&mut all, &folder);
    // Each gets an event for the end of its predecessor, and one for its own node; a thundering herd would cause thousands.
    let events = proxy.events();
    assert!((COMMANDS..=2 * COMMANDS).contains(&events), "{events}");
    let lists = proxy.count(Op::GetChildren) + proxy.count(Op::GetChildren2);
    assert!((COMMANDS..=3 * COMMANDS).contains(&lists), "{lists}");
}

/// A command that writes its token to a file, and fails if another command is inside.
fn contender(address: &str, folder: &TempDir) -> Command {
    let script = "mkdir busy && echo $BELLWETHER_TOKEN >>log && rmdir busy";
    // Quiet commands do not read the progress of the line.
    let mut command = job(address, &["--quiet", "lock", "x"], script);
    command.current_dir(folder.path());
    command
}

fn assert_served_in_order(all: &mut [Running], folder: &TempDir) {
    for one in all {
        assert_eq!(one.code(), Some(0), "{:?}", one.errors());
    }
    let served = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let served: Vec<i64> = served.lines().map(|token| token.parse().unwrap()).collect();
    assert_eq!(served.len(), COMMANDS);
    // The token is the zxid at which the place in line was taken.
    assert!(served.is_sorted(), "{served:?}");
}
