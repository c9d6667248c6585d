//! Completion in the shells themselves: commands, options, values, paths of nodes, holders, files, and the command of a job.

use std::process::Command;

use crate::support::bellwether::{Running, assert_code, bellwether, holding, serve, text};
use crate::support::home::Home;
use crate::support::on_tree::answer;
use crate::support::shell::{Shell, path_with_bellwether};

fn make_nodes(address: &str) {
    for path in ["jobs/nightly", "jobs/night watch", "jobs/weekly"] {
        // Without the notice of a machine that is busy.
        answer(address, &["create", "-q", "-p", path, "x"]);
    }
}

/// A server with nodes and a holder.
fn server() -> (Running, Running, String) {
    let (server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = addresses[0].clone();
    make_nodes(&address);
    let holder = holding(&address, &["lock", "/held/here", "-m", "full backup"]);
    (server, holder, address)
}

/// The answer to a completion script: the first line, and the words.
fn complete(address: &str, words: &[&str]) -> (String, Vec<String>) {
    let mut command = bellwether();
    let command = command.args(["complete", "--", "bellwether"]).args(words);
    let output = command.env("BELLWETHER_CONNECT", address).output().unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
    let said = text(&output.stdout);
    let mut lines = said.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.collect())
}

#[test]
fn what_may_stand_at_the_cursor_is_offered() {
    let (_server, _holder, address) = server();
    let words = |words: &[&str]| {
        let (kind, lines) = complete(&address, words);
        let words = lines
            .iter()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        (kind, words.collect::<Vec<_>>())
    };
    let paths = |paths: &[&str]| {
        let paths = paths.iter().map(|&path| path.to_owned());
        ("paths".to_owned(), paths.collect::<Vec<_>>())
    };
    // As typed: with or without the slash.
    assert_eq!(
        words(&["lock", "jobs/ni"]),
        paths(&["jobs/night watch", "jobs/nightly"])
    );
    assert_eq!(words(&["rm", "/x", "/jobs/w"]), paths(&["/jobs/weekly"]));
    assert_eq!(words(&["why", "--within=/jo"]), paths(&["--within=/jobs"]));
    // The servers of the command line count.
    let elsewhere = ["get", "--connect", "127.0.0.1:1", "/jobs/w"];
    assert_eq!(words(&elsewhere), paths(&[]));
    // What is held, with its holder.
    let (_, held) = complete(&address, &["revoke", "he"]);
    let [line] = &held[..] else {
        panic!("{held:?}");
    };
    assert!(
        line.starts_with("held/here\tlock, ") && line.contains("(full backup)"),
        "{line}"
    );
    // Nobody leads.
    assert_eq!(words(&["leader", "/jobs/w"]), paths(&["/jobs/weekly"]));
    for (typed, offered) in [
        (&["expo"][..], &["export"][..]),
        (&["queue", "d"], &["dead"]),
        (&["help", "expo"], &["export"]),
        (&["man", "queue", "d"], &["dead"]),
        (&["lock", "x", "--tr"], &["--try"]),
        // It is typed already.
        (&["lock", "x", "-n", "--tr"], &[]),
        (&["get", "--session-t"], &["--session-timeout"]),
        (&["lock", "--layout", "ka"], &["kazoo"]),
        (&["lock", "--layout=ka"], &["--layout=kazoo"]),
        (&["lock", "--on-crash", ""], &["run", "fail"]),
        (&["tx", "vote", "p", "id", "site", "c"], &["commit"]),
        (&["completions", "z"], &["zsh"]),
        (&["lock", "x", "--message", ""], &[]),
        // Hidden commands stay hidden.
        (&["complet"], &["completions"]),
    ] {
        let (kind, words) = words(typed);
        assert_eq!(
            (&*kind, words),
            (
                "words",
                offered.iter().copied().map(str::to_owned).collect()
            ),
            "{typed:?}"
        );
    }
    assert_eq!(words(&["set", "x", "--file", ""]).0, "files");
    assert_eq!(words(&["lock", "x", "--", "ma"]).0, "job 4");
    assert_eq!(words(&["lock", "x", "make", "-"]).0, "job 3");
}

/// What is typed in a terminal, and a part of the line that Tab makes of it.
const TYPED: [(&str, &str); 9] = [
    ("bellwether get /jobs/w", "bellwether get /jobs/weekly"),
    ("bellwether lock jobs/ni", "bellwether lock jobs/night"),
    (
        "bellwether get jobs/night\\ w",
        "bellwether get jobs/night\\ watch",
    ),
    ("bellwether revoke /he", "bellwether revoke /held/here"),
    ("bellwether expo", "bellwether export "),
    (
        "bellwether lock --session-t",
        "bellwether lock --session-timeout ",
    ),
    (
        "bellwether lock x --layout=ka",
        "bellwether lock x --layout=kazoo ",
    ),
    (
        "bellwether get -c 127.0.0.1:1 x; bellwether queue de",
        "x; bellwether queue dead ",
    ),
    (
        "bellwether log /etc/debian_v",
        "bellwether log /etc/debian_version",
    ),
];

#[track_caller]
fn assert_completes_in(shell: &mut Shell, load: &str) {
    make_nodes(&shell.address);
    let _holder = holding(&shell.address, &["lock", "/held/here"]);
    shell.type_line(load);
    shell.until_shown("loaded");
    shell.until_shown("ready> ");
    for (typed, becomes) in TYPED {
        shell.press(&format!("{typed}\t"));
        // The completed line is echoed or redrawn; the rest of it may follow.
        shell.until_seen(|rows| rows.iter().any(|row| format!("{row} ").contains(becomes)));
        // Ctrl-U clears the line, and a line of its own makes a mark on the screen.
        shell.type_line("\x15echo nex\"\"t");
        shell.until_shown("next");
        shell.until_shown("ready> ");
    }
}

#[test]
fn bash_completes() {
    let mut shell = Shell::start_program(&["bash", "--norc", "--noprofile", "-i"], "xterm");
    assert_completes_in(
        &mut shell,
        "eval \"$(bellwether completions bash)\"; echo lo\"\"aded",
    );
    // The command of a job.
    shell.press("bellwether lock x -- bellweth\t");
    shell.until_seen(|rows| rows.iter().any(|row| row.contains("x -- bellwether")));
}

#[test]
fn zsh_completes() {
    let mut shell = Shell::start_program(&["zsh", "-f", "-i"], "xterm");
    assert_completes_in(
        &mut shell,
        "autoload -Uz compinit; compinit -D -u; eval \"$(bellwether completions zsh)\"; echo lo\"\"aded",
    );
    shell.press("bellwether lock x -- bellweth\t");
    shell.until_seen(|rows| rows.iter().any(|row| row.contains("x -- bellwether")));
}

#[test]
fn zsh_loads_the_script_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let script = bellwether().args(["completions", "zsh"]).output().unwrap();
    std::fs::write(folder.path().join("_bellwether"), script.stdout).unwrap();
    let mut shell = Shell::start_program(&["zsh", "-f", "-i"], "xterm");
    let folder = folder.path().display();
    shell.type_line(&format!(
        "fpath=({folder} $fpath); autoload -Uz compinit; compinit -D -u; echo lo\"\"aded"
    ));
    shell.until_shown("loaded");
    shell.until_shown("ready> ");
    shell.press("bellwether expo\t");
    shell.until_seen(|rows| rows.iter().any(|row| row.contains("bellwether export")));
}

#[test]
fn fish_completes() {
    let (_server, _holder, address) = server();
    let complete = |typed: &str| {
        let try_it = format!("bellwether completions fish | source; complete -C {typed:?}");
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", &try_it])
            .env("PATH", path_with_bellwether())
            .env("BELLWETHER_CONNECT", &address);
        let output = fish.output().unwrap();
        assert_eq!(text(&output.stderr), "", "{typed}");
        text(&output.stdout)
    };
    assert_eq!(
        complete("bellwether lock jobs/ni"),
        "jobs/night watch\njobs/nightly\n"
    );
    assert_eq!(complete("bellwether get /jobs/w"), "/jobs/weekly\n");
    let held = complete("bellwether why /he");
    assert!(
        held.starts_with("/held/here\tlock, ") && held.contains("(full backup)"),
        "{held}"
    );
    assert!(complete("bellwether expo").starts_with("export\tWrite a node"));
    assert!(complete("bellwether lock --session-t").starts_with("--session-timeout\t"));
    assert!(complete("bellwether lock x --layout=ka").starts_with("--layout=kazoo\t"));
    assert_eq!(
        complete("bellwether log /etc/debian_v"),
        "/etc/debian_version\n"
    );
    assert_eq!(
        complete("bellwether set x --file=/etc/debian_v"),
        "--file=/etc/debian_version\n"
    );
    let job = complete("bellwether lock x -- bellweth");
    assert!(job.starts_with("bellwether"), "{job}");
    assert!(complete("bellwether lock x -- bellwether expo").starts_with("export\t"));
}

#[test]
fn key_that_is_pressed_starts_no_server_and_says_nothing() {
    let home = Home::new();
    let words = ["complete", "--", "bellwether", "get", "jobs/"];
    let output = home.bellwether().args(words).output().unwrap();
    assert_code(&output, 0);
    assert_eq!(
        (&*text(&output.stdout), &*text(&output.stderr)),
        ("paths\n", "")
    );
    assert_eq!(home.server(), None);
    let nowhere = ["get", "--connect", "127.0.0.1:1", "jobs/"];
    assert_eq!(complete("127.0.0.1:1", &nowhere).0, "paths");
    // Nor does it ask for a password.
    let sasl = ["get", "--connect", "127.0.0.1:1", "--sasl", "me", "jobs/"];
    assert_eq!(complete("127.0.0.1:1", &sasl).0, "paths");
    // What cannot be understood is no error.
    assert_eq!(complete("", &[]).0, "words");
    assert_eq!(
        complete(":", &["get", "--session-timeout=x", "/"]).0,
        "paths"
    );
}
