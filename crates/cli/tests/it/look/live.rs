//! `bellwether top` and `locks --watch` on a terminal: screen content and keys.

use std::process::Stdio;

use crate::support::bellwether::{Running, bellwether, until};
use crate::support::shell::Shell;

/// A job that ends with its input.
fn holder(address: &str, path: &str) -> Running {
    let script = "echo held; read end";
    let mut command = bellwether();
    command.args(["lock", "-c", address, "-m", "live", path, "--"]);
    command.args(["sh", "-c", script]);
    Running::start_with(command.stdin(Stdio::piped()))
}

/// The rows of the table: without the summary, the names of columns, the keys and empty rows.
fn table(rows: &[String]) -> Vec<&str> {
    let end = rows.len().saturating_sub(1);
    let table = rows.get(2..end.max(2)).unwrap_or_default();
    table
        .iter()
        .map(String::as_str)
        .filter(|row| !row.is_empty())
        .collect()
}

/// Whether the rows of the table begin with `expected`.
fn begins(rows: &[String], expected: &[&str]) -> bool {
    let table = table(rows);
    table.len() == expected.len()
        && table
            .iter()
            .zip(expected)
            .all(|(row, begin)| row.starts_with(begin))
}

fn summary_is(rows: &[String], counts: &str) -> bool {
    rows.first().is_some_and(|row| row.ends_with(counts))
}

#[test]
fn screen_follows_what_happens_and_is_gone_after_q() {
    let mut shell = Shell::start();
    shell.type_line("bellwether locks --watch; echo \"code=$?\"");
    shell.until_seen(|rows| summary_is(rows, "bellwether locks /  0 held, 0 waiting"));
    shell.until_seen(|rows| {
        rows[1]
            .split_whitespace()
            .eq(["state", "path", "what", "who", "age", "token"])
    });
    shell.until_seen(|rows| rows.last().is_some_and(|row| row.ends_with("q quit")));

    let mut first = holder(&shell.address, "x");
    assert_eq!(first.line().as_deref(), Some("held"));
    shell.until_seen(|rows| {
        begins(rows, &["holds     /x    lock"]) && rows[2].contains(" sh (live) ")
    });
    let mut second = holder(&shell.address, "x");
    shell.until_seen(|rows| begins(rows, &["holds     /x    lock, 1 waits", "waits     /x "]));
    assert!(summary_is(&shell.seen(), "1 held, 1 waiting"));
    first.end_input();
    assert_eq!(second.line().as_deref(), Some("held"));
    shell.until_seen(|rows| begins(rows, &["holds     /x    lock "]));
    second.end_input();
    second.code();
    shell.until_seen(|rows| begins(rows, &[]) && summary_is(rows, "0 held, 0 waiting"));

    shell.press("q");
    shell.until_seen(|lines| lines.iter().any(|line| line.ends_with("code=0")));
    assert!(
        shell.seen()[0].contains("bellwether locks --watch;"),
        "the screen of before is back: {:?}",
        shell.seen()
    );
    // Input is echoed again, too.
    shell.type_line("echo \"typed-$((6 * 7))\"");
    shell.until_seen(|lines| lines.iter().any(|line| line == "typed-42"));
    assert!(shell.seen().iter().any(|line| line.contains("typed-$((")));
}

#[test]
fn long_lists_are_scrolled_and_filtered() {
    let mut shell = Shell::start();
    let mut holders: Vec<_> = (10..40)
        .map(|number| holder(&shell.address, &format!("many/{number}")))
        .collect();
    for holder in &mut holders {
        assert_eq!(holder.line().as_deref(), Some("held"));
    }
    shell.type_line("bellwether top many; echo \"code=$?\"");
    let first = |rows: &[String]| rows.get(2).cloned().unwrap_or_default();
    shell.until_seen(|rows| table(rows).len() == 21 && first(rows).contains(" /many/10 "));
    // The selection moves down by a page, and the table scrolls with it.
    shell.press("\x1b[6~");
    shell.until_seen(|rows| table(rows).len() == 21 && first(rows).contains(" /many/11 "));
    shell.press("\x1b[6~");
    shell.until_seen(|rows| {
        table(rows)
            .last()
            .is_some_and(|row| row.contains(" /many/39 "))
    });
    shell.press("/y/3");
    shell.until_seen(|rows| table(rows).len() == 10 && first(rows).contains(" /many/30 "));
    assert!(shell.seen().last().unwrap().starts_with("filter: y/3_"));
    shell.press("5\r");
    shell.until_seen(|rows| table(rows).len() == 1 && first(rows).contains(" /many/35 "));
    shell.press("\x1b");
    shell.until_seen(|rows| table(rows).len() == 21);
    shell.press("\x03");
    shell.until_shown("code=130");
}

#[test]
fn keys_tell_why_ask_and_take_away_after_a_question() {
    let mut shell = Shell::start();
    let mut job = holder(&shell.address, "x");
    assert_eq!(job.line().as_deref(), Some("held"));
    shell.type_line("bellwether top; echo \"code=$?\"");
    shell.until_seen(|rows| begins(rows, &["holds     /x "]));
    shell.press("w");
    shell.until_seen(|rows| {
        rows.get(1).is_some_and(|row| row == "/x  lock")
            && rows
                .get(2)
                .is_some_and(|row| row.trim_start().starts_with("held by "))
    });
    shell.press("xr");
    let asks =
        |question: &str, rows: &[String]| rows.last().is_some_and(|row| row.starts_with(question));
    shell.until_seen(|rows| asks("ask ", rows));
    shell.press("n");
    shell.until_seen(|rows| summary_is(rows, "cancelled"));
    shell.press("ry");
    shell.until_seen(|rows| begins(rows, &["asked     /x "]));
    let told = job.error_line().unwrap();
    assert!(told.contains("asked to release /x by "), "{told}");
    shell.press("b");
    shell.until_seen(|rows| asks("break the hold of ", rows));
    shell.press("y");
    until("the job gets the request", || {
        job.error_line()
            .is_none_or(|line| line.contains("within 10s"))
    });
    assert_eq!(job.code(), Some(123));
    // The job ended by itself in time; for the next holder the stop counts as a crash.
    shell.until_seen(|rows| begins(rows, &["crashed   /x "]));
    assert!(shell.seen()[0].contains("0 held, 0 waiting, 1 crashed"));
    shell.press("q");
    shell.until_shown("code=0");
}

#[test]
fn deadlock_comes_first() {
    let mut shell = Shell::start();
    let program = env!("CARGO_BIN_EXE_bellwether");
    let mut lone = holder(&shell.address, "a");
    assert_eq!(lone.line().as_deref(), Some("held"));
    let mut jobs: Vec<_> = [("y", "z"), ("z", "y")]
        .into_iter()
        .map(|(has, wants)| {
            let script = format!("echo held; read go; exec {program} lock -q {wants} -- true");
            let mut command = bellwether();
            command.args(["lock", "-c", &shell.address, has, "--", "sh", "-c", &script]);
            Running::start_with(command.stdin(Stdio::piped()))
        })
        .collect();
    for job in &mut jobs {
        assert_eq!(job.line().as_deref(), Some("held"));
    }
    jobs.iter_mut().for_each(Running::end_input);
    shell.type_line("bellwether top");
    let expected = [
        "DEADLOCK  /y ",
        "DEADLOCK  /z ",
        "holds     /a ",
        "holds     /y ",
        "holds     /z ",
    ];
    shell.until_seen(|rows| begins(rows, &expected));
    assert!(shell.seen()[0].contains("3 held, 2 waiting, 1 DEADLOCK"));
    shell.press("q");
}
