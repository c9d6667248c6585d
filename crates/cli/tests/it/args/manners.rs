//! What people expect of any command: help, completions, a manual, colours, pipes and prompts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_testkit::Direction;
use rustix::process::Signal;

use crate::support::bellwether::{Running, assert_code, bellwether, holding, job, serve, text};
use crate::support::line::through_proxy;
use crate::support::on_tree::{answer, command, make_many, run};
use crate::support::shell::Shell;

#[test]
fn completions_are_made_for_every_shell() {
    for (shell, sign) in [
        ("bash", "complete -F _bellwether"),
        ("zsh", "#compdef bellwether"),
        ("fish", "complete -c bellwether"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = bellwether().args(["completions", shell]).output().unwrap();
        assert_code(&output, 0);
        let script = text(&output.stdout);
        assert!(script.contains(sign), "{shell}");
    }
    assert_code(
        &bellwether().args(["completions", "cmd"]).output().unwrap(),
        2,
    );
}

#[test]
fn manual_has_a_page_for_every_command() {
    let page = bellwether().arg("man").output().unwrap();
    assert_code(&page, 0);
    assert!(text(&page.stdout).contains(".TH bellwether 1"));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_code(&bellwether().arg("man").arg(&pages).output().unwrap(), 0);
    for name in [
        "bellwether",
        "bellwether-lock",
        "bellwether-watch",
        "bellwether-acl-set",
    ] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains("EXAMPLES"), "{name}");
    }
}

#[test]
fn pages_of_the_manual_are_sound_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_code(&bellwether().arg("man").arg(&pages).output().unwrap(), 0);
    for page in std::fs::read_dir(&pages).unwrap() {
        let page = page.unwrap().path();
        let shown = Command::new("groff")
            .args(["-Kutf8", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=100n"])
            .arg(&page)
            .output()
            .unwrap();
        assert_eq!(text(&shown.stderr), "", "{page:?}");
        let shown = text(&shown.stdout);
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "SEE ALSO"] {
            assert!(shown.contains(heading), "{page:?}: {shown}");
        }
        // Nothing is left of the markup of the sources, and each option has a text.
        assert!(!shown.contains('`'), "{page:?}: {shown}");
        let lines: Vec<_> = shown.lines().map(str::trim).collect();
        let is_bare = |line: &str| line.starts_with("--") && line.split(' ').count() <= 2;
        let bare = lines
            .windows(2)
            .find(|lines| is_bare(lines[0]) && lines[1].is_empty());
        assert_eq!(bare, None, "{page:?}");
    }
    let lock = std::fs::read_to_string(pages.join("bellwether-lock.1")).unwrap();
    assert!(lock.contains("EXIT STATUS") && lock.contains("BELLWETHER_CONNECT"));
}

#[test]
fn manual_shows_the_page_of_one_command() {
    for (words, sign) in [
        (&["lock"][..], ".TH bellwether-lock 1"),
        (&["queue", "take"], ".TH bellwether-queue-take 1"),
    ] {
        let page = bellwether().arg("man").args(words).output().unwrap();
        assert_code(&page, 0);
        let page = text(&page.stdout);
        assert!(page.contains(sign) && page.contains("EXAMPLES"), "{page}");
    }
    let none = bellwether().args(["man", "lokc"]).output().unwrap();
    assert_code(&none, 2);
    assert!(
        text(&none.stderr).contains("there is no command `lokc`"),
        "{none:?}"
    );
}

#[test]
fn help_has_the_commands_in_groups_with_the_most_used_first() {
    for arguments in [&["--help"][..], &["-h"], &["help"]] {
        let help = bellwether().args(arguments).output().unwrap();
        assert_code(&help, 0);
        let help = text(&help.stdout);
        let headings: Vec<_> = help
            .lines()
            .filter(|line| line.ends_with(':') && !line.starts_with(' '))
            .collect();
        let groups = [
            "Most used:",
            "Run:",
            "Look:",
            "Coordinate:",
            "Tree:",
            "Server:",
        ];
        assert!(headings.starts_with(&groups), "{headings:?}");
        let (_, first) = help.split_once("Most used:\n  ").unwrap();
        assert!(first.starts_with("lock "), "{help}");
        assert!(
            help.contains("--quiet") && help.contains("Example:"),
            "{help}"
        );
    }
    // The help of a command stays the same.
    let help = bellwether().args(["lock", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("--on-crash"));
}

#[test]
fn columns_have_names_on_a_terminal_and_nowhere_else() {
    let mut shell = Shell::start();
    shell.type_line(
        "bellwether create -p /a/b ''; bellwether queue put /q item; bellwether ls -l /a",
    );
    shell.until_shown("version children bytes changed");
    shell.until_shown("ready> ");
    shell.type_line("bellwether queue ls /q");
    shell.until_shown("rank  bytes tries  age holder");
    for arguments in [&["ls", "-l", "/a"][..], &["queue", "ls", "/q"]] {
        let listed = answer(&shell.address, arguments);
        assert_eq!(listed.lines().count(), 1, "{listed}");
    }
}

#[test]
fn mistyped_command_gets_a_suggestion_and_2() {
    let output = bellwether().arg("wacth").output().unwrap();
    assert_code(&output, 2);
    assert!(text(&output.stderr).contains("'watch'"));
}

#[test]
fn closed_pipe_is_a_quiet_end() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    for arguments in [
        &["ls"][..],
        &["tree"],
        &["export"],
        &["get", "/", "--json"],
        &["stat"],
    ] {
        let mut command = command(&addresses[0], arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_code(&output, 0);
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn address_where_nothing_listens_is_125_with_a_hint() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    let output = run(&address, &["ls"]);
    assert_code(&output, 125);
    let said = text(&output.stderr);
    assert!(
        said.contains(&address) && said.contains("hint: `bellwether serve"),
        "{said}"
    );
}

#[test]
fn t95_server_that_does_not_answer_within_the_wait_is_an_error_and_no_conflict() {
    // It accepts connections, and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    // Without a limit it would be the session timeout.
    let timeout = ["--session-timeout", "40s"];
    for (arguments, code) in [
        (
            &["lock", "x", "-q", "--wait", "1s", "-E", "0", "--", "true"][..],
            125,
        ),
        (&["lock", "x", "--try", "--", "true"], 125),
        (&["lock", "x", "--hold", "--wait", "1s"], 125),
        (
            &["queue", "take", "q", "-q", "--wait", "1s", "-E", "0"],
            125,
        ),
        (&["barrier", "wait", "b", "--wait", "1s"], 125),
        (
            &["rendezvous", "r", "-n", "1", "--wait", "1s", "--", "true"],
            125,
        ),
        (
            &["once", "o", "-q", "--wait", "1s", "-E", "0", "--", "true"],
            125,
        ),
    ] {
        let start = Instant::now();
        let mut command = bellwether();
        command.args(&arguments[..1]).args(&arguments[1..2]);
        let output = command
            .args(["--connect", &address])
            .args(timeout)
            .args(&arguments[2..])
            .output()
            .unwrap();
        assert_code(&output, code);
        let said = text(&output.stderr);
        // The servers, and the reason of each.
        assert!(
            said.contains("no server answered within") && said.contains(&address),
            "{said}"
        );
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(20), "{arguments:?}: {taken:?}");
    }
}

#[test]
fn t95_server_that_dies_during_the_wait_is_an_error_and_no_conflict() {
    let (server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let _holder = holding(&addresses[0], &["lock", "x"]);
    let options = ["lock", "x", "--wait", "8s", "-E", "0"];
    let mut waiter = Running::start(&mut job(&addresses[0], &options, "echo ran"));
    let waits = waiter.error_line().unwrap();
    assert!(waits.contains("waiting for /x"), "{waits}");
    server.signal(Signal::KILL);
    assert_eq!(waiter.code(), Some(125));
    assert_eq!(waiter.line(), None);
    let said = waiter.errors().join("\n");
    assert!(said.contains("no server answered within"), "{said}");
}

#[test]
fn log_is_silent_unless_it_is_asked_for() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    for (level, lines) in [(None, 0), (Some("warn"), 1)] {
        let (_runtime, proxy, through) = through_proxy(&addresses[0]);
        let mut command = command(&through, &["config", "watch", "x", "--json"]);
        if let Some(level) = level {
            command.env("RUST_LOG", level);
        }
        let mut watch = Running::start(&mut command);
        assert!(watch.line().is_some());
        // The close of the session is not acknowledged, which the library and the command log.
        proxy.hold(Direction::Both);
        watch.signal(Signal::INT);
        assert_eq!(watch.code(), Some(130));
        let logged = watch.errors();
        let logged: Vec<_> = logged.iter().filter(|line| line.contains("WARN")).collect();
        assert_eq!(logged.len(), lines, "{logged:?}");
    }
}

/// A command in a terminal, with a screen to read and a keyboard to type on.
fn terminal(address: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut line = vec![env!("CARGO_BIN_EXE_bellwether")];
    line.extend(arguments);
    let line = format!("{} --connect {address}", line.join(" "));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(variables.iter().copied());
    script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a command in a terminal, types something, and returns the screen and the exit code.
fn in_terminal(
    address: &str,
    arguments: &[&str],
    typed: &str,
    variables: &[(&str, &str)],
) -> (String, Option<i32>) {
    let mut terminal = terminal(address, arguments, variables);
    let mut keyboard = terminal.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    drop(keyboard);
    let output = terminal.wait_with_output().unwrap();
    (text(&output.stdout), output.status.code())
}

#[test]
fn rm_r_asks_on_a_terminal() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = &addresses[0];
    answer(address, &["create", "-p", "/a/b/c"]);
    for (typed, code) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        let (screen, ended) = in_terminal(address, &["rm", "-r", "/a"], typed, &[]);
        assert!(
            screen.contains("delete /a and 2 nodes below it? [y/N]"),
            "{screen}"
        );
        assert_eq!(ended, Some(code), "{screen}");
        let is_there = run(address, &["stat", "/a"]).status.success();
        assert_eq!(is_there, code == 1, "{screen}");
    }
    answer(address, &["create", "-p", "/a/b/c"]);
    let (screen, ended) = in_terminal(address, &["rm", "-r", "--yes", "/a"], "", &[]);
    assert_eq!(ended, Some(0), "{screen}");
    assert!(!screen.contains("[y/N]"), "{screen}");
}

#[test]
fn question_can_be_left_by_ctrl_c() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    answer(&addresses[0], &["create", "-p", "/a/b"]);
    let mut terminal = terminal(&addresses[0], &["rm", "-r", "/a"], &[]);
    let mut keyboard = terminal.stdin.take().unwrap();
    let mut screen = BufReader::new(terminal.stdout.take().unwrap());
    let mut asked = Vec::new();
    while !asked.ends_with(b"[y/N]") {
        assert_ne!(screen.read_until(b']', &mut asked).unwrap(), 0);
    }
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(terminal.wait().unwrap().code(), Some(130));
    drop(keyboard);
    answer(&addresses[0], &["stat", "/a/b"]);
}

#[test]
fn long_deletion_shows_how_far_it_is_on_a_terminal_only() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    for (quiet, shown) in [
        (&["rm", "-r", "--yes", "/many"][..], true),
        (&["rm", "-r", "--yes", "-q", "/many"], false),
    ] {
        make_many(&addresses[0], 2000);
        let (screen, ended) = in_terminal(&addresses[0], quiet, "", &[]);
        assert_eq!(ended, Some(0), "{screen}");
        assert_eq!(screen.contains("deleting"), shown, "{screen}");
    }
}

#[test]
fn terminal_gets_a_line_end_and_no_escape_sequences_of_nodes() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = &addresses[0];
    answer(address, &["create", "/text", "plain"]);
    let (screen, ended) = in_terminal(address, &["get", "/text"], "", &[]);
    assert_eq!((&*screen, ended), ("plain\r\n", Some(0)));
    answer(address, &["create", "/escape", "\u{1b}[2J"]);
    let (screen, ended) = in_terminal(address, &["get", "/escape"], "", &[]);
    assert!(
        !screen.contains("[2J") && screen.contains("hint: -o FILE"),
        "{screen}"
    );
    assert_eq!(ended, Some(1));
    let (screen, ended) = in_terminal(address, &["get", "/escape", "-o", "-"], "", &[]);
    assert_eq!((&*screen, ended), ("\u{1b}[2J", Some(0)));
    let escape = "\u{1b}[2J";
    answer(address, &["config", "set", "/config", escape]);
    answer(
        address,
        &["name", "register", "--lasting", "/names", "db", escape],
    );
    answer(address, &["queue", "put", "/queue", escape]);
    for arguments in [
        &["config", "get", "/config"][..],
        &["name", "resolve", "/names", "db"],
        &["queue", "peek", "/queue"],
        &["queue", "take", "/queue"],
    ] {
        let (screen, ended) = in_terminal(address, arguments, "", &[]);
        assert!(
            !screen.contains("[2J") && screen.contains("are not plain text"),
            "{screen}"
        );
        assert_eq!(ended, Some(1), "{arguments:?}");
    }
    let watch = ["config", "watch", "/config", "--count", "1"];
    let (screen, ended) = in_terminal(address, &watch, "", &[]);
    assert!(!screen.contains("[2J") && ended == Some(0), "{screen}");
    let mut leader = bellwether();
    leader.args(["elect", "/election", "--value", escape, "-c", address]);
    let mut leader =
        Running::start(leader.args(["--", "sh", "-c", "echo leads; tail -f /dev/null"]));
    assert_eq!(leader.line().as_deref(), Some("leads"));
    let (screen, ended) = in_terminal(address, &["leader", "--value", "/election"], "", &[]);
    assert!(!screen.contains("[2J") && ended == Some(1), "{screen}");
    // The item was given back, and a pipe gets it as it is.
    assert_eq!(answer(address, &["queue", "take", "/queue"]), escape);
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let (screen, _) = in_terminal("", &["--help"], "", &[]);
    assert!(screen.contains('\u{1b}'), "{screen}");
    let (screen, _) = in_terminal("", &["--help"], "", &[("NO_COLOR", "1")]);
    assert!(
        !screen.contains('\u{1b}') && screen.contains("Example"),
        "{screen}"
    );
    let output = bellwether().arg("--help").output().unwrap();
    assert!(!text(&output.stdout).contains('\u{1b}'));
}
