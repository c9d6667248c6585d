//! `bellwether locks --watch` on a terminal: what is on the screen.

use std::process::Stdio;

use crate::bellwether::{Running, bellwether};
use crate::terminal::Shell;

/// A job that ends with its input.
fn holder(address: &str, path: &str) -> Running {
    let script = "echo held; read end";
    let mut command = bellwether();
    command.args(["lock", "-c", address, "-m", "live", path, "--"]);
    command.args(["sh", "-c", script]);
    Running::start_with(command.stdin(Stdio::piped()))
}

/// Whether the rows of the screen, but for empty ones, begin so.
fn begins(rows: &[String], expected: &[&str]) -> bool {
    let rows: Vec<_> = rows.iter().filter(|row| !row.is_empty()).collect();
    rows.len() == expected.len()
        && rows
            .iter()
            .zip(expected)
            .all(|(row, begin)| row.starts_with(begin))
}

#[test]
fn screen_follows_what_happens_and_is_gone_after_q() {
    let mut shell = Shell::start();
    let title = "bellwether locks /";
    let foot = "↑ ↓ scroll   q quit";
    shell.type_line("bellwether locks --watch; echo \"code=$?\"");
    shell.until_seen(|lines| begins(lines, &[title, foot]));

    let mut first = holder(&shell.address, "x");
    assert_eq!(first.line().as_deref(), Some("held"));
    shell.until_seen(|lines| {
        begins(lines, &[title, "/x  lock", "  holds  ", foot]) && lines[2].contains(" sh (live), ")
    });
    let mut second = holder(&shell.address, "x");
    let both = [title, "/x  lock, 1 waits", "  holds  ", "  waits  ", foot];
    shell.until_seen(|lines| begins(lines, &both));
    first.end_input();
    assert_eq!(second.line().as_deref(), Some("held"));
    shell.until_seen(|lines| begins(lines, &[title, "/x  lock", "  holds  ", foot]));
    second.end_input();
    second.code();
    shell.until_seen(|lines| begins(lines, &[title, foot]));

    shell.press("q");
    shell.until_seen(|lines| lines.iter().any(|line| line.ends_with("code=0")));
    assert!(
        shell.seen()[0].contains("bellwether locks --watch;"),
        "the screen of before is back: {:?}",
        shell.seen()
    );
    // And so is the echo of what is typed.
    shell.type_line("echo \"typed-$((6 * 7))\"");
    shell.until_seen(|lines| lines.iter().any(|line| line == "typed-42"));
    assert!(shell.seen().iter().any(|line| line.contains("typed-$((")));
}

#[test]
fn long_lists_are_scrolled() {
    let mut shell = Shell::start();
    let mut holders: Vec<_> = (10..30)
        .map(|number| holder(&shell.address, &format!("many/{number}")))
        .collect();
    for holder in &mut holders {
        assert_eq!(holder.line().as_deref(), Some("held"));
    }
    shell.type_line("bellwether locks --watch many; echo \"code=$?\"");
    let first = |lines: &[String]| lines.get(1).cloned().unwrap_or_default();
    shell.until_seen(|lines| {
        !lines.iter().any(String::is_empty) && first(lines) == "/many/10  lock"
    });
    shell.press("\x1b[B\x1b[B");
    shell.until_seen(|lines| {
        !lines.iter().any(String::is_empty) && first(lines) == "/many/11  lock"
    });
    shell.press("\x1b[6~");
    shell.until_seen(|lines| {
        lines.iter().any(String::is_empty) && !first(lines).contains("/many/11")
    });
    shell.press("\x03");
    shell.until_shown("code=130");
}
