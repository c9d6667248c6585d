//! Commands and habits of other tools, and what to type here instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::LockArgs;
use crate::output::refusal::Refusal;
use crate::value::node_path;

/// Commands of other tools, and what does the same here.
const COMMANDS: [(&[&str], &str); 15] = [
    (
        &["unlock", "release", "free"],
        "a lock is released when its command ends, or when stdin of `lock --hold` ends; \
         `bellwether revoke PATH` asks the holder to release it, `bellwether break PATH` breaks the hold",
    ),
    (
        &["delete", "del", "remove", "rmr", "deleteall"],
        "`bellwether rm PATH` deletes a node, `rm -r` also all nodes below it",
    ),
    (
        &["flock", "acquire", "mutex"],
        "`bellwether lock PATH COMMAND` runs a command under a lock",
    ),
    (
        &["semaphore", "sem"],
        "`bellwether lock --of N PATH COMMAND` runs at most N commands at a time",
    ),
    (
        &["rwlock", "read", "write"],
        "`bellwether lock --read PATH COMMAND` acquires the read side, `--write` the write side",
    ),
    (
        &["election", "master"],
        "`bellwether elect PATH COMMAND` runs a command as leader; `bellwether leader PATH` prints the leader",
    ),
    (
        &["ps", "who", "status", "holders", "list"],
        "`bellwether locks` lists locks with their holders, `bellwether ls PATH` nodes",
    ),
    (
        &["cat", "show"],
        "`bellwether get PATH` prints the data of a node",
    ),
    (
        &["mkdir", "touch", "add"],
        "`bellwether create -p PATH` creates a node and its parents",
    ),
    (
        &["getAcl", "setAcl"],
        "`bellwether acl get PATH` and `bellwether acl set PATH ACL`",
    ),
    (
        &["forget", "retry", "revive"],
        "`bellwether queue dead PATH` and `bellwether tasks ls PATH` have --retry and --forget; `tx forget` is for transactions",
    ),
    (&["push", "enqueue"], "`bellwether queue put PATH DATA`"),
    (
        &["take", "pop", "dequeue"],
        "`bellwether queue take PATH COMMAND`",
    ),
    (
        &["server", "start"],
        "`bellwether serve` runs a server; commands start a local server by themselves",
    ),
    (
        &["stop"],
        "`bellwether local stop` stops the local server, `bellwether break PATH` stops a job",
    ),
];

/// Answers a command that exists only in other tools.
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

/// Answers a job without a command, whose path stands after `--`. `typed` is the whole command line.
pub(crate) fn answer_without_path(
    error: &clap::Error,
    typed: impl Iterator<Item = OsString>,
) -> Option<Refusal> {
    let lacks_command =
        error.kind() == ErrorKind::MissingRequiredArgument && is_about(error, "COMMAND");
    lacks_command
        .then(|| check_path(&[], typed).err())
        .flatten()
}

/// Explains `-c COMMAND`, as `flock` has it, where the command is missing because `-c` names servers. `typed` is the whole command line.
pub(crate) fn hint(
    error: &clap::Error,
    typed: impl Iterator<Item = OsString>,
) -> Option<&'static str> {
    let lacks_command =
        error.kind() == ErrorKind::MissingRequiredArgument && is_about(error, "COMMAND");
    let typed: Vec<_> = typed.collect();
    if lacks_command && short_connect(typed.iter().cloned()).is_none() {
        let is_lock = typed.iter().skip(1).find(|word| !is_option(word)) == Some(&"lock".into());
        return is_lock.then_some(
            "`lock PATH -- COMMAND` runs a command under the lock; `lock PATH --hold` holds it for a script until stdin ends",
        );
    }
    let typed = typed.into_iter();
    let fits = match error.kind() {
        ErrorKind::MissingRequiredArgument => is_about(error, "COMMAND"),
        ErrorKind::ValueValidation => is_about(error, "--connect"),
        _ => false,
    };
    let connect = fits.then(|| short_connect(typed)).flatten()?;
    is_like_command(&connect).then_some(
        "-c names the servers here, unlike in `flock`; to run a shell command: bellwether lock PATH -- sh -c 'COMMAND'",
    )
}

pub(crate) fn is_option(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// The command line, with `lock PATH -c 'COMMAND'` of `flock` as `lock PATH -- sh -c 'COMMAND'`: only where the last word cannot name
/// servers.
pub(crate) fn with_shell_command(mut typed: Vec<OsString>) -> Vec<OsString> {
    let is_lock = typed.iter().skip(1).find(|word| !is_option(word)) == Some(&"lock".into());
    let [.., c, command] = &typed[..] else {
        return typed;
    };
    let command = command.to_string_lossy();
    let is_command = command.contains(char::is_whitespace) || command.starts_with(['/', '.', '~']);
    let has_separator = typed.iter().any(|word| word == "--");
    if is_lock && c == "-c" && is_command && !has_separator {
        let at = typed.len() - 2;
        typed.splice(at..at, ["--", "sh"].map(OsString::from));
    }
    typed
}

/// Whether an error is about an argument whose name contains `what`.
fn is_about(error: &clap::Error, what: &str) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.contains(what),
        Some(ContextValue::Strings(arguments)) => arguments.iter().any(|one| one.contains(what)),
        _ => false,
    }
}

/// The value of `-c`.
fn short_connect(typed: impl Iterator<Item = OsString>) -> Option<String> {
    let words = typed.map(|word| word.to_string_lossy().into_owned());
    let mut words = words.take_while(|word| word != "--");
    let first = words.find(|word| word.starts_with("-c"))?;
    match first.strip_prefix("-c") {
        Some("") => words.next(),
        value => value.map(str::to_owned),
    }
}

/// Whether a connect string is rather a command: with blanks, a path, or a word that no server is likely to have as its name.
fn is_like_command(connect: &str) -> bool {
    let is_word = connect.chars().all(|c| c.is_ascii_lowercase());
    connect.contains(char::is_whitespace)
        || connect.starts_with(['/', '.', '~'])
        || is_word && !["local", "localhost"].contains(&connect)
}

/// Finds a `--` inside the command of a job that begins without one. `typed` is the whole command line.
fn separator(command: &[OsString], typed: impl Iterator<Item = OsString>) -> Option<usize> {
    let is_separator = |word: &OsString| word == "--";
    let inside = command.iter().filter(|word| is_separator(word)).count();
    // A `--` before the command is not among its words.
    match typed.filter(is_separator).count() > inside {
        true => None,
        false => command.iter().position(is_separator),
    }
}

/// Refuses a job whose path stands after `--`: it is the first word of the command, and the path before `--` is missing, as after an unset
/// variable in a script. `typed` is the whole command line, and `command` what was taken from it for the job.
pub(crate) fn check_path(
    command: &[OsString],
    mut typed: impl Iterator<Item = OsString>,
) -> Result<(), Refusal> {
    typed.find(|word| word == "--");
    let behind: Vec<_> = typed.collect();
    let Some(first) = behind.first().filter(|_| command.len() < behind.len()) else {
        return Ok(());
    };
    Err(
        Refusal::usage("the path before `--` is missing").hint(format!(
            "`{}` stands after `--`, so it is the command; is a variable empty?",
            first.display()
        )),
    )
}

/// Refuses a `--` inside a command that begins without one: the words before it are probably not meant to be run.
pub(crate) fn check_separator(
    command: &[OsString],
    typed: impl Iterator<Item = OsString>,
) -> Result<(), Refusal> {
    if separator(command, typed).is_none() {
        return Ok(());
    }
    let first = command.first().map(|word| word.display().to_string());
    let first = first.unwrap_or_default();
    Err(Refusal::usage(format!(
        "this would run `{first}` with `--` among its arguments"
    ))
    .hint(format!("write `-- {first} …` if you mean that")))
}

/// Takes the words before `--` in `lock A B -- COMMAND` as further locks.
pub(crate) fn take_paths(
    lock: &mut LockArgs,
    typed: impl Iterator<Item = OsString>,
) -> Result<(), Refusal> {
    let Some(separator) = separator(&lock.command, typed) else {
        return Ok(());
    };
    let command = lock.command.split_off(separator + 1);
    lock.command.truncate(separator);
    for word in std::mem::replace(&mut lock.command, command) {
        let word = word.to_string_lossy();
        if word.starts_with('-') {
            return Err(Refusal::usage(format!(
                "{word} is an option after a lock, where only locks can follow"
            ))
            .hint("options come before the locks: `lock --try A B -- COMMAND`"));
        }
        let path = node_path::parse(&word);
        let path =
            path.map_err(|why| Refusal::usage(format!("{word} is not the path of a lock: {why}")))?;
        lock.also.push(path);
    }
    let has_kind = lock.read || lock.write || lock.of.is_some() || lock.layout.is_some();
    match (lock.command.is_empty(), has_kind) {
        (true, _) if !lock.explain => Err(Refusal::usage("the command after `--` is missing")),
        (_, true) => Err(Refusal::usage(
            "with several locks, --read, --write, --of and --layout are not possible",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn commands_are_told_from_servers() {
        for command in ["echo hi", "/usr/bin/true", "./job.sh", "true"] {
            assert!(is_like_command(command), "{command}");
        }
        for servers in [
            "local",
            "localhost",
            "zk1",
            "zk-a.example:2181",
            "a:1,b:1/batch",
        ] {
            assert!(!is_like_command(servers), "{servers}");
        }
        let connect = |typed: &str| short_connect(words(typed).into_iter());
        assert_eq!(
            connect("bellwether lock x -c date").as_deref(),
            Some("date")
        );
        assert_eq!(connect("bellwether lock x -cdate").as_deref(), Some("date"));
        assert_eq!(connect("bellwether lock x -- sh -c date"), None);
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

    #[test]
    fn first_word_after_the_separator_is_no_path() {
        let check = |command: &str, typed: &str| {
            check_path(&words(command), words(typed).into_iter()).is_ok()
        };
        assert!(check("cp a b", "bellwether lock x -- cp a b"));
        assert!(check("cp a b", "bellwether lock x cp a b"));
        assert!(check("y -- cp a b", "bellwether lock x y -- cp a b"));
        assert!(check("git add -- x", "bellwether lock x -- git add -- x"));
        assert!(check("", "bellwether lock --hold x"));
        assert!(!check("a b", "bellwether lock -- cp a b"));
        assert!(!check("-- x", "bellwether lock -- git -- x"));
        assert!(!check("", "bellwether queue take -- cat"));
    }
}
