//! What is being typed: the command line up to the cursor, read with the definitions of the parser.

use clap::{Arg, Command, Id};

use crate::args::is_about_connection;

/// A command line up to the cursor. It may be incomplete or wrong.
pub(super) struct Typed<'a> {
    pub(super) program: &'a Command,
    /// The command, or the subcommand.
    pub(super) command: &'a Command,
    /// Its name and those above it, without the program.
    pub(super) names: Vec<&'a str>,
    /// The positional arguments so far.
    pub(super) positionals: Vec<&'a str>,
    /// The options of the connection, to be parsed again.
    pub(super) connection: Vec<String>,
    /// The options so far.
    pub(super) options: Vec<&'a Id>,
    pub(super) cursor: Cursor<'a>,
}

/// What the word at the cursor is.
pub(super) enum Cursor<'a> {
    Subcommand(&'a str),
    Option(&'a str),
    /// The value of an option, or a positional argument.
    Value {
        arg: &'a Arg,
        /// What stands before it in the same word: `--order=`.
        prefix: &'a str,
        begin: &'a str,
    },
    /// A command that is run, which begins at this word.
    Job(usize),
    Unknown,
}

impl<'a> Typed<'a> {
    /// `words` begin with the program and end with the word at the cursor, which may be empty.
    pub(super) fn read(program: &'a Command, words: &'a [String]) -> Self {
        let mut typed = Self {
            program,
            command: program,
            names: Vec::new(),
            positionals: Vec::new(),
            connection: Vec::new(),
            options: Vec::new(),
            cursor: Cursor::Unknown,
        };
        let Some((current, before)) = words.split_last() else {
            return typed;
        };
        let (mut pending, mut job, mut is_behind_dashes) = (None, None, false);
        for (index, word) in before.iter().enumerate().skip(1) {
            if let Some(arg) = pending.take() {
                typed.note(arg, Some(word));
            } else if word == "--" && !is_behind_dashes {
                // What stood before it were paths, as in `lock A B -- COMMAND`.
                (is_behind_dashes, job) = (true, job.map(|_| index + 1));
            } else if job.is_some() {
                // A word of the job's own.
            } else if !is_behind_dashes && is_option(word) {
                pending = typed.note_option(word);
            } else if let Some(below) = typed.command.find_subcommand(word) {
                typed.command = below;
                typed.names.push(below.get_name());
            } else if typed.is_at_job() {
                job = Some(index);
            } else {
                typed.positionals.push(word);
            }
        }
        typed.cursor = match (pending, job) {
            (Some(arg), _) => Cursor::Value {
                arg,
                prefix: "",
                begin: current,
            },
            (None, Some(job)) => Cursor::Job(job),
            (None, None) if !is_behind_dashes && current.starts_with('-') => {
                typed.in_option(current)
            }
            (None, None) if typed.command.has_subcommands() => Cursor::Subcommand(current),
            (None, None) if typed.is_at_job() => Cursor::Job(before.len()),
            (None, None) => typed
                .positional()
                .map_or(Cursor::Unknown, |arg| Cursor::Value {
                    arg,
                    prefix: "",
                    begin: current,
                }),
        };
        typed
    }

    /// The positional argument at the cursor.
    fn positional(&self) -> Option<&'a Arg> {
        let mut all = self.command.get_positionals();
        let last = self.command.get_positionals().last();
        let nth = all.nth(self.positionals.len());
        nth.or_else(|| last.filter(|arg| takes_many(arg)))
    }

    /// Whether the next positional argument begins a command that is run.
    fn is_at_job(&self) -> bool {
        self.positional().is_some_and(Arg::is_trailing_var_arg_set)
    }

    /// The word at the cursor begins with a dash.
    fn in_option(&self, word: &'a str) -> Cursor<'a> {
        let Some((option, begin)) = word.split_once('=') else {
            return Cursor::Option(word);
        };
        let arg = option.strip_prefix("--").and_then(|long| self.long(long));
        arg.map_or(Cursor::Unknown, |arg| Cursor::Value {
            arg,
            prefix: &word[..=option.len()],
            begin,
        })
    }

    fn long(&self, name: &str) -> Option<&'a Arg> {
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        };
        self.command.get_arguments().find(is_it)
    }

    fn short(&self, letter: char) -> Option<&'a Arg> {
        let mut all = self.command.get_arguments();
        all.find(|arg| arg.get_short() == Some(letter))
    }

    /// Notes an option, and returns it if its value is the next word.
    fn note_option(&mut self, word: &str) -> Option<&'a Arg> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            return self.note(self.long(name)?, value);
        }
        for (at, letter) in word.char_indices().skip(1) {
            let arg = self.short(letter)?;
            let rest = &word[at + letter.len_utf8()..];
            if takes_value(arg) {
                return self.note(arg, (!rest.is_empty()).then_some(rest));
            }
            self.note(arg, None);
        }
        None
    }

    fn note(&mut self, arg: &'a Arg, value: Option<&str>) -> Option<&'a Arg> {
        if takes_value(arg) && value.is_none() {
            return Some(arg);
        }
        self.options.push(arg.get_id());
        if let Some(long) = arg.get_long().filter(|_| is_about_connection(arg)) {
            let value = value.filter(|_| takes_value(arg));
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            self.connection.push(format!("--{long}{value}"));
        }
        None
    }
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && word != "-"
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

pub(super) fn takes_many(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        clap::ArgAction::Append | clap::ArgAction::Count
    ) || arg
        .get_num_args()
        .is_some_and(|count| count.max_values() > 1)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    /// What is at the cursor, behind the words of `line`; a blank at its end begins another word.
    fn at_cursor(line: &str) -> String {
        let mut program = Args::command();
        program.build();
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let typed = Typed::read(&program, &words);
        let names = typed.names.join(" ");
        let what = match typed.cursor {
            Cursor::Subcommand(begin) => format!("subcommand {begin}"),
            Cursor::Option(begin) => format!("option {begin}"),
            Cursor::Value { arg, prefix, begin } => format!("{} {prefix}|{begin}", arg.get_id()),
            Cursor::Job(index) => format!("job {index}"),
            Cursor::Unknown => "unknown".to_owned(),
        };
        format!("{names}: {what}")
    }

    #[test]
    fn word_at_the_cursor_is_understood() {
        for (line, is) in [
            ("bellwether ", ": subcommand "),
            ("bellwether -q lo", ": subcommand lo"),
            ("bellwether queue pu", "queue: subcommand pu"),
            ("bellwether lock jobs/n", "lock: path |jobs/n"),
            ("bellwether lock -c zk1:2181 jo", "lock: path |jo"),
            ("bellwether lock -nc zk1:2181 jo", "lock: path |jo"),
            ("bellwether lock --wait 5 jo", "lock: path |jo"),
            ("bellwether lock x --wai", "lock: option --wai"),
            ("bellwether lock x --layout k", "lock: layout |k"),
            ("bellwether lock x --layout=k", "lock: layout --layout=|k"),
            ("bellwether lock x -- ma", "lock: job 4"),
            ("bellwether lock x make --ta", "lock: job 3"),
            ("bellwether lock a b -- ma", "lock: job 5"),
            ("bellwether lock a -- git add -- ", "lock: job 4"),
            ("bellwether rm a b c", "rm: path |c"),
            ("bellwether leader a ", "leader: unknown"),
            ("bellwether tx vote p id site c", "tx vote: vote |c"),
            ("bellwether stat -- -x", "stat: path |-x"),
            ("bellwether version ", "version: unknown"),
            ("bellwether lock --unheard-of jo", "lock: path |jo"),
        ] {
            assert_eq!(at_cursor(line), is, "{line}");
        }
    }

    #[test]
    fn options_of_the_connection_are_kept() {
        let mut program = Args::command();
        program.build();
        let line = "bellwether get --connect zk1 --tls --json --session-timeout=4s x";
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let typed = Typed::read(&program, &words);
        assert_eq!(
            typed.connection,
            ["--connect=zk1", "--tls", "--session-timeout=4s"]
        );
    }
}
