//! Answers for people: column names on a terminal, and times in the reader's time zone.

use crate::support::bellwether::{assert_code, text};
use crate::support::on_tree::{answer, command};
use crate::support::shell::Shell;

#[test]
fn columns_have_names_on_a_terminal_and_none_elsewhere() {
    let mut shell = Shell::start();
    let address = shell.address.clone();
    answer(&address, &["config", "set", "app/limits", "5"]);
    answer(&address, &["queue", "put", "q", "item"]);
    answer(
        &address,
        &["name", "register", "--lasting", "names", "db", "x"],
    );
    answer(&address, &["queue", "put", "dead", "x"]);
    let mut fail = command(&address, &["queue", "take", "dead", "--attempts", "1"]);
    assert_code(&fail.args(["--", "false"]).output().unwrap(), 1);
    for (arguments, header) in [
        (&["config", "ls", "app"][..], "name data\r\n"),
        (&["name", "ls", "names"], "name data\r\n"),
        (&["queue", "ls", "q"], " rank  bytes tries  age holder\r\n"),
        (&["queue", "dead", "dead"], " tries reason data\r\n"),
        (&["ls", "-l"], "version children bytes changed"),
    ] {
        shell.type_line(&format!("bellwether {}", arguments.join(" ")));
        shell.until_shown(header);
        let piped = answer(&address, arguments);
        assert!(!piped.contains(header.trim_end()), "{piped}");
        assert!(!piped.is_empty(), "{arguments:?}");
    }
    // No columns to name.
    shell.type_line("bellwether config ls nowhere; echo done-$?");
    shell.until_shown("done-0");
}

#[test]
fn times_are_in_the_zone_of_the_reader() {
    let shell = Shell::start();
    answer(&shell.address, &["create", "a", "x"]);
    let created = |zone: &str| {
        let mut stat = command(&shell.address, &["stat", "a"]);
        let output = stat.env("TZ", zone).output().unwrap();
        assert_code(&output, 0);
        let said = text(&output.stdout);
        let line = said.lines().find(|line| line.starts_with("created"));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    assert!(created("UTC").ends_with('Z'));
    assert!(
        created("XXX-5:30").ends_with("+05:30"),
        "{}",
        created("XXX-5:30")
    );
}
