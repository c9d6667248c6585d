//! Spellings that a command had before its neighbours' word won. They still work, with a hint.

use std::ffi::OsString;

use clap::ArgMatches;

/// Command, old spelling, new spelling: of an option, or of a command below it.
const OLD: [(&str, &str, &str); 8] = [
    ("set", "--version", "--expect"),
    ("rm", "--version", "--expect"),
    ("acl set", "--version", "--expect"),
    ("config set", "--version", "--expect"),
    ("queue dead", "--revive", "--retry"),
    ("dashboard", "--http", "--listen"),
    ("tasks ls", "status", "ls"),
    ("tx ls", "status", "ls"),
];

/// The hint for an old spelling on a command line. `typed` is all of it.
pub(crate) fn hint(matches: &ArgMatches, typed: impl Iterator<Item = OsString>) -> Option<String> {
    let name = name(matches);
    let typed = typed.map(|word| word.to_string_lossy().into_owned());
    let typed: Vec<_> = typed.take_while(|word| word != "--").collect();
    let mut old = OLD.iter().filter(|(command, ..)| *command == name);
    let is_typed = |spelling| typed.iter().any(|word| is_spelled(word, spelling));
    let (_, old, new) = old.find(|(_, old, new)| is_typed(old) && !is_typed(new))?;
    Some(format!("`{old}` is spelled `{new}` now"))
}

fn is_spelled(word: &str, old: &str) -> bool {
    word.strip_prefix(old)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The command and its subcommands, as in `queue work`.
pub(crate) fn name(matches: &ArgMatches) -> String {
    let names = std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand());
    let names: Vec<_> = names.map(|(name, _)| name).collect();
    names.join(" ")
}
