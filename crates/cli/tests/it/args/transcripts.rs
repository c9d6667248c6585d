//! The transcripts in `tests/transcripts`, whose README.md explains them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::bellwether::{bellwether, serve, text, user_and_host};
use crate::support::shell::path_with_bellwether;

/// The variable with which the files are written instead of compared.
const REWRITE: &str = "BELLWETHER_REWRITE_TRANSCRIPTS";

/// Functions for the commands.
const FUNCTIONS: &str = r#"
mkfifo ready
held() {
    bellwether "$@" -- sh -c 'echo >ready; exec tail -f /dev/null' 2>>held.log &
    read -r <ready
}
let_go() {
    # One that was broken may have ended.
    kill $(jobs -pr) 2>/dev/null
    wait
    cat held.log
    rm held.log
}
exec 2>&1
"#;

/// Generates a test for each file.
macro_rules! transcripts {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

transcripts! { elections, locks, mistakes, nodes, queues, state, transactions, }

#[test]
fn every_transcript_has_a_test() {
    let files = std::fs::read_dir(folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter_map(|name| name.strip_suffix(".txt").map(str::to_owned))
        .collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// A line of explanation, or a command.
enum Part {
    Comment(String),
    Command(String),
}

fn parts(transcript: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for line in transcript.lines() {
        match (line.split_once(' '), parts.last_mut()) {
            (Some(("#", _)), _) => parts.push(Part::Comment(line.to_owned())),
            (Some(("$", command)), _) => parts.push(Part::Command(command.to_owned())),
            (Some((">", more)), Some(Part::Command(command))) => {
                command.push('\n');
                command.push_str(more);
            }
            // What it printed before.
            _ => {}
        }
    }
    parts
}

#[track_caller]
fn check(name: &str) {
    let file = folder().join(name).with_extension("txt");
    let before = std::fs::read_to_string(&file).unwrap();
    let now = run(&parts(&before));
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&file, now).unwrap();
        return;
    }
    let differ = before.lines().zip(now.lines()).find(|(was, is)| was != is);
    assert!(
        before == now,
        "{name}.txt differs first in {differ:?}; {REWRITE}=1 writes what is printed now:\n{now}"
    );
}

/// Runs the commands in one shell, and returns the transcript.
fn run(parts: &[Part]) -> String {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let folder = tempfile::tempdir().unwrap();
    let mut script = FUNCTIONS.to_owned();
    for part in parts {
        if let Part::Command(command) = part {
            // A line for the exit code, behind whatever the command printed.
            let _ = write!(script, "{command}\nprintf '\\001%d\\001' $?\n");
        }
    }
    let mut shell = bellwether();
    // The same environment as that of the command.
    let environment: Vec<_> = shell
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    shell = Command::new("bash");
    for (name, value) in environment {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell
        .args(["--norc", "-c", &script])
        .env("BELLWETHER_CONNECT", &addresses[0])
        .env("PATH", path_with_bellwether())
        .env("TZ", "UTC")
        .env_remove("VISUAL")
        .env_remove("EDITOR")
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = text(&output.stdout);
    let steady = steady(&printed, &addresses[0]);
    let mut answers = steady.split('\u{1}');
    let mut transcript = String::new();
    for part in parts {
        match part {
            Part::Comment(line) => {
                let _ = writeln!(transcript, "{line}");
            }
            Part::Command(command) => {
                let _ = writeln!(transcript, "$ {}", command.replace('\n', "\n> "));
                let (answer, code) = (answers.next().unwrap_or_default(), answers.next());
                transcript.push_str(answer);
                if !answer.is_empty() && !answer.ends_with('\n') {
                    transcript.push('\n');
                }
                match code {
                    Some("0") => {}
                    Some(code) => {
                        let _ = writeln!(transcript, "exit code {code}");
                    }
                    None => transcript.push_str("the shell has ended\n"),
                }
            }
        }
    }
    transcript
}

/// What was printed, with placeholders for what differs between runs.
fn steady(printed: &str, address: &str) -> String {
    let (_, port) = address.rsplit_once(':').unwrap();
    let (who, user_host) = ("<WHO>", user_and_host());
    let (user, host) = user_host.split_once('@').unwrap();
    let printed = printed
        .replace(address, "<SERVER>")
        .replace(&format!(":{port}"), ":<PORT>")
        .replace(&user_host, who)
        .replace(&format!("\"host\":\"{host}\""), "\"host\":\"<HOST>\"")
        .replace(&format!("\"user\":\"{user}\""), "\"user\":\"<USER>\"");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("printed");
    std::fs::write(&file, printed).unwrap();
    let placeholders = self::folder().join("placeholders.sed");
    let sed = Command::new("sed")
        .args(["-E", "-f"])
        .args([&placeholders, &file])
        .output()
        .unwrap();
    assert!(sed.status.success(), "{}", text(&sed.stderr));
    text(&sed.stdout)
}
