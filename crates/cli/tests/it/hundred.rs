//! A hundred commands that want the same lock.

use std::process::{Command, Stdio};

use bellwether_testkit::Op;
use tempfile::TempDir;

use crate::bellwether::{Running, apache, bellwether, job, serve, until};
use crate::line::{Line, through_proxy};
use crate::local::Home;

const COMMANDS: usize = 100;

#[test]
fn hundred_commands_on_a_server_are_served_in_order_and_wake_one_at_a_time() {
    // They all come from one address.
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

/// Lets them come while somebody else holds the lock, and counts what their sessions hear.
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
    assert_eq!(proxy.events(), 0, "nobody is woken by those who come");
    first.end_input();
    assert_served_in_order(&mut all, &folder);
    // Each hears of the end of the one before it, and of that of its own node; a herd would be thousands.
    let events = proxy.events();
    assert!((COMMANDS..=2 * COMMANDS).contains(&events), "{events}");
    let lists = proxy.count(Op::GetChildren) + proxy.count(Op::GetChildren2);
    assert!((COMMANDS..=3 * COMMANDS).contains(&lists), "{lists}");
}

/// A command that notes its token, and fails if another one is inside.
fn contender(address: &str, folder: &TempDir) -> Command {
    let script = "mkdir busy && echo $BELLWETHER_TOKEN >>log && rmdir busy";
    // Quiet ones do not look how the wait goes.
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
    // A token is the moment at which the place in line was taken.
    assert!(served.is_sorted(), "{served:?}");
}
