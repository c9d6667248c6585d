//! Errors of the parser, made to help: options that are spelled alike, and the same usage line in every environment.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use strsim::osa_distance;

use crate::args::Args;
use crate::args::habits::is_option;

/// How many letters a word may differ from the option that was meant: swapped neighbours count as one.
const DISTANCE_MAX: usize = 2;

/// Replaces what the parser says about how to do better. `typed` is the whole command line.
pub(crate) fn explained(
    mut error: clap::Error,
    typed: impl Iterator<Item = OsString>,
) -> clap::Error {
    let mut command = Args::command();
    command.build();
    let mut command = called(&command, typed).clone();
    // The parser lists the options that are set, also those that a variable sets.
    if error.get(ContextKind::Usage).is_some() {
        let usage = ContextValue::StyledStr(command.render_usage());
        error.insert(ContextKind::Usage, usage);
    }
    if error.kind() == ErrorKind::UnknownArgument {
        // It suggests to pass the option as a value, which is never meant.
        error.remove(ContextKind::Suggested);
        if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
            && let Some(meant) = similar(&command, option)
        {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(meant));
        }
    }
    error
}

/// The command that is called.
fn called(program: &Command, typed: impl Iterator<Item = OsString>) -> &Command {
    let mut words = typed.skip(1).skip_while(is_option);
    let mut command = program;
    while let Some(below) = words.next().and_then(|word| command.find_subcommand(&word)) {
        command = below;
    }
    command
}

/// The option of a command that is spelled almost like this one.
fn similar(command: &Command, option: &str) -> Option<String> {
    let typed = option.strip_prefix("--")?;
    let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let names = options.filter_map(Arg::get_long);
    let distances = names.map(|name| (osa_distance(typed, name), name));
    let (distance, name) = distances.min()?;
    // Two letters of a short word are all of it.
    (distance <= DISTANCE_MAX && 2 * distance < typed.len()).then(|| format!("--{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_spelled_alike_are_found() {
        let mut command = Args::command();
        command.build();
        let lock = command.find_subcommand("lock").unwrap();
        let found = |typed: &str| similar(lock, typed);
        assert_eq!(found("--tyr").as_deref(), Some("--try"));
        assert_eq!(found("--on-carsh").as_deref(), Some("--on-crash"));
        assert_eq!(found("--maxtime").as_deref(), Some("--max-time"));
        assert_eq!(found("--xyz"), None);
        assert_eq!(found("-z"), None);
    }
}
