//! Paths of nodes, completed by a shell.

use std::process::Command;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text};
use crate::support::home::Home;
use crate::support::on_tree::answer;
use crate::support::shell::{Shell, path_with_bellwether};

fn make_nodes(address: &str) {
    for path in ["jobs/nightly", "jobs/night watch", "jobs/weekly"] {
        answer(address, &["create", "-p", path, "x"]);
    }
}

/// A server with nodes, for shells that run a script.
fn server() -> (Running, String) {
    let (server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    make_nodes(&addresses[0]);
    (server, addresses[0].clone())
}

/// The lines that a shell prints.
fn lines(shell: &mut Command, address: &str) -> Vec<String> {
    let shell = shell.env("PATH", path_with_bellwether());
    let output = shell.env("BELLWETHER_CONNECT", address).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_paths_of_nodes() {
    let (_server, address) = server();
    let complete = |words: &[&str]| {
        let try_it = format!(
            "eval \"$(bellwether completions bash)\"; COMP_WORDS=({}); COMP_CWORD={}; compopt() {{ :; }}; _bellwether_with_paths bellwether {} {}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        lines(
            Command::new("bash").args(["--norc", "-c", &try_it]),
            &address,
        )
    };
    let offered = complete(&["bellwether", "lock", "jobs/ni"]);
    assert!(offered.contains(&"jobs/nightly".to_owned()), "{offered:?}");
    assert!(
        offered.contains(&"jobs/night watch".to_owned()),
        "{offered:?}"
    );
    assert!(!offered.contains(&"jobs/weekly".to_owned()), "{offered:?}");
    let offered = complete(&["bellwether", "get", "/jobs/w"]);
    assert!(offered.contains(&"/jobs/weekly".to_owned()), "{offered:?}");
    // Commands and flags as before.
    assert_eq!(complete(&["bellwether", "expo"]), ["export"]);
    let offered = complete(&["bellwether", "lock", "--session-t"]);
    assert_eq!(offered, ["--session-timeout"]);
}

#[test]
fn fish_completes_paths_of_nodes() {
    let (_server, address) = server();
    let complete = |typed: &str| {
        let try_it = format!("bellwether completions fish | source; complete -C '{typed}'");
        let offered = lines(
            Command::new("fish").args(["--no-config", "-c", &try_it]),
            &address,
        );
        // A description may follow, after a tab.
        let words = offered
            .iter()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        words.collect::<Vec<_>>()
    };
    assert_eq!(
        complete("bellwether lock jobs/ni"),
        ["jobs/night watch", "jobs/nightly"]
    );
    assert_eq!(complete("bellwether get /jobs/w"), ["/jobs/weekly"]);
    assert_eq!(complete("bellwether expo"), ["export"]);
    assert_eq!(
        complete("bellwether lock --session-t"),
        ["--session-timeout"]
    );
}

#[test]
fn zsh_completes_paths_of_nodes() {
    let mut shell = Shell::start_program(&["zsh", "-f", "-i"], "xterm");
    make_nodes(&shell.address);
    shell.type_line("autoload -Uz compinit; compinit -D -u; eval \"$(bellwether completions zsh)\"; echo lo\"\"aded");
    shell.until_shown("loaded");
    shell.until_shown("ready> ");
    let completed = |shell: &Shell, typed: &str| {
        shell.until_seen(|rows| rows.iter().any(|row| row.contains(typed)));
    };
    shell.press("bellwether get /jobs/w\t");
    completed(&shell, "bellwether get /jobs/weekly");
    // Ctrl-U clears the line.
    shell.press("\x15bellwether lock jobs/ni\t");
    completed(&shell, "bellwether lock jobs/night");
    shell.press("ly\x15bellwether expo\t");
    completed(&shell, "bellwether export");
}

#[test]
fn key_that_is_pressed_starts_no_server_and_says_nothing() {
    let home = Home::new();
    let output = home.bellwether().args(["complete-paths", "jobs/"]).output();
    let output = output.unwrap();
    assert_code(&output, 0);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        Default::default()
    );
    assert_eq!(home.server(), None);
    let unreachable = ["complete-paths", "jobs/", "--connect", "127.0.0.1:1"];
    let output = bellwether().args(unreachable).output().unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
}
