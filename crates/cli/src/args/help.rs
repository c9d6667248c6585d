//! The list of commands in `bellwether --help`, in groups, which clap does not have.

use clap::{Command, CommandFactory};

use crate::args::Args;

/// All commands, the most used ones first.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Most used",
        &["lock", "once", "elect", "queue", "locks", "why"],
    ),
    ("Run", &["rendezvous", "tasks", "note"]),
    (
        "Look",
        &[
            "top",
            "dashboard",
            "leader",
            "revoke",
            "break",
            "doctor",
            "demo",
        ],
    ),
    (
        "Coordinate",
        &["barrier", "group", "name", "config", "counter", "tx"],
    ),
    (
        "Tree",
        &[
            "ls", "tree", "get", "set", "create", "rm", "stat", "watch", "acl", "export", "import",
        ],
    ),
    (
        "Server",
        &[
            "local",
            "serve",
            "ensemble",
            "torture",
            "log",
            "snapshot",
            "completions",
            "man",
        ],
    ),
];

/// The command line, with its help in groups. It takes time to make, so it is made only for help.
pub(crate) fn grouped() -> Command {
    let command = Args::command();
    let width = command.get_subcommands().map(|one| one.get_name().len());
    let width = width.max().unwrap_or_default();
    let mut list = String::new();
    for (heading, names) in GROUPS {
        list += &format!("{heading}:\n");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(Command::get_about)
                .map(ToString::to_string);
            list += &format!("  {name:<width$}  {}\n", about.unwrap_or_default());
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).collect();
        listed.sort_unstable();
        let command = Args::command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut all: Vec<_> = shown.map(Command::get_name).collect();
        all.sort_unstable();
        assert!(listed.into_iter().copied().eq(all));
    }
}
