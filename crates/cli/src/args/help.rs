//! The list of commands in `bellwether --help`, in groups, which clap does not have.

use clap::{Command, CommandFactory};

use crate::args::Args;

/// All commands, the most used ones first.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
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

/// What the path of a command is about, where its definition, which several commands share, does not say so.
const PATHS: [(&str, &str); 7] = [
    ("barrier", "barrier"),
    ("queue", "queue"),
    ("tasks", "tasks"),
    ("group", "group"),
    ("name", "names"),
    ("config", "value, or of the folder of values"),
    ("counter", "counter"),
];

/// The command line, as it is explained to users.
pub(crate) fn explained() -> Command {
    let explain = |command: Command, what: &str| {
        command.mut_args(|arg| match arg.get_id() == "path" {
            true => arg.help(format!(
                "The path of the {what}; the leading slash is optional"
            )),
            false => arg,
        })
    };
    PATHS.iter().fold(Args::command(), |command, (name, what)| {
        command.mut_subcommand(name, |command| {
            // `barrier ls` looks at all below its path, and says so.
            let is_shared = |command: &Command| {
                let mut args = command.get_arguments();
                args.any(|arg| arg.get_id() == "path" && arg.get_default_values().is_empty())
            };
            command.mut_subcommands(|command| match is_shared(&command) {
                true => explain(command, what),
                false => command,
            })
        })
    })
}

/// The command line, with its help in groups. It takes time to make, so it is made only for help.
pub(crate) fn grouped() -> Command {
    let command = explained();
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
