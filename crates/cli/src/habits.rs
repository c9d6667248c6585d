//! What users of other tools type first, and what to type here instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::refusal::Refusal;

/// Commands of other tools, each with what does the same here.
const COMMANDS: [(&[&str], &str); 14] = [
    (
        &["unlock", "release", "free"],
        "a lock is released when its command ends, or with the stdin of `lock --hold`; \
         `bellwether revoke PATH` asks its holder to let go, `bellwether break PATH` takes it away",
    ),
    (
        &["delete", "del", "remove", "rmr", "deleteall"],
        "`bellwether rm PATH` deletes a node, `rm -r` all below it too",
    ),
    (
        &["flock", "acquire", "mutex"],
        "`bellwether lock PATH COMMAND` runs a command under a lock",
    ),
    (
        &["semaphore", "sem"],
        "`bellwether lock --of N PATH COMMAND` lets N run at a time",
    ),
    (
        &["rwlock", "read", "write"],
        "`bellwether lock --read PATH COMMAND` shares a lock, `--write` takes it alone",
    ),
    (
        &["leader", "election"],
        "`bellwether elect PATH COMMAND` runs a command while it leads; `bellwether locks PATH` shows who does",
    ),
    (
        &["ps", "top", "who", "status", "holders", "list"],
        "`bellwether locks` shows who holds what, `bellwether ls PATH` the nodes",
    ),
    (
        &["cat", "show"],
        "`bellwether get PATH` prints the data of a node",
    ),
    (
        &["mkdir", "touch", "add"],
        "`bellwether create -p PATH` makes a node and those above it",
    ),
    (
        &["getAcl", "setAcl"],
        "`bellwether acl get PATH` and `bellwether acl set PATH ACL`",
    ),
    (
        &["put", "push", "enqueue"],
        "`bellwether queue put PATH DATA`",
    ),
    (
        &["take", "pop", "dequeue"],
        "`bellwether queue take PATH COMMAND`",
    ),
    (
        &["server", "start"],
        "`bellwether serve` runs a server; a local one is started when it is needed",
    ),
    (
        &["stop"],
        "`bellwether local stop` ends the local server, `bellwether break PATH` a job",
    ),
];

/// A better answer to a command that does not exist than that it does not.
pub(crate) fn answer(error: &clap::Error) -> Option<Refusal> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (_, instead) = COMMANDS
        .iter()
        .find(|(names, _)| names.contains(&typed.as_str()))?;
    Some(Refusal::usage(format!("there is no command `{typed}`")).hint(*instead))
}

/// Refuses a `--` in the middle of what would be the command if it began without one: `lock A B -- COMMAND`, where B is
/// hardly meant to be run. `typed` is the whole command line.
pub(crate) fn check_separator(
    command: &[OsString],
    typed: impl Iterator<Item = OsString>,
) -> Result<(), Refusal> {
    let is_separator = |word: &OsString| word == "--";
    let inside = command.iter().filter(|word| is_separator(word)).count();
    // The one that the command begins with is not among its words.
    if inside == 0 || typed.filter(is_separator).count() > inside {
        return Ok(());
    }
    let first = command.first().map(|word| word.display().to_string());
    let first = first.unwrap_or_default();
    Err(Refusal::usage(format!(
        "`{first}` and what follows would be run, and `--` would be an argument of it"
    ))
    .hint(format!("write `-- {first} …` if that is meant")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn separator_is_refused_only_where_the_command_begins_without_one() {
        let check = |command: &str, typed: &str| {
            check_separator(&words(command), words(typed).into_iter()).is_ok()
        };
        assert!(check("sh -c x", "bellwether lock a sh -c x"));
        assert!(check("git add -- x", "bellwether lock a -- git add -- x"));
        assert!(!check("git add -- x", "bellwether lock a git add -- x"));
        assert!(!check("b -- c", "bellwether lock a b -- c"));
    }
}
