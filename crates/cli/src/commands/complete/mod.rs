//! `bellwether complete`: what may stand at the cursor, for the completion scripts of bash, zsh and fish.
//!
//! The first line of the answer says what kind of words follow, one per line, each with its description behind a tab:
//!
//! - `words`: each is complete.
//! - `paths`: each may go on, so no blank is added.
//! - `files`: none follow. The shell completes names of files.
//! - `job N`: none follow. The shell completes a command that begins with word N.
//!
//! Nothing is ever printed on stderr: that would disturb the line that is typed.

mod nodes;
mod typed;

use clap::{Arg, Command, CommandFactory, ValueHint};

use self::nodes::Wanted;
use self::typed::{Cursor, Typed};
use crate::args::{Args, CompleteArgs};
use crate::exit::Exit;
use crate::output;
use crate::output::people::plain;

pub(crate) fn run(args: CompleteArgs) -> anyhow::Result<Exit> {
    let mut program = Args::command();
    // Gives commands the options of those above.
    program.build();
    let words = args.words.iter().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.map(String::from).collect();
    let answer = answer(&Typed::read(&program, &words));
    Ok(output::answer(|out| {
        match answer {
            Answer::Words(words) => {
                writeln!(out, "words")?;
                write(out, &words)?;
            }
            Answer::Paths(paths) => {
                writeln!(out, "paths")?;
                write(out, &paths)?;
            }
            Answer::Files => writeln!(out, "files")?,
            Answer::Job(begin) => writeln!(out, "job {begin}")?,
        }
        Ok(Exit::Done)
    })?)
}

fn write(out: &mut dyn std::io::Write, candidates: &[Candidate]) -> std::io::Result<()> {
    for Candidate { word, about } in candidates {
        match about.is_empty() {
            true => writeln!(out, "{word}")?,
            false => writeln!(out, "{word}\t{}", plain(about))?,
        }
    }
    Ok(())
}

/// What may stand at the cursor.
enum Answer {
    Words(Vec<Candidate>),
    Paths(Vec<Candidate>),
    Files,
    Job(usize),
}

/// One word, and what it means.
struct Candidate {
    word: String,
    about: String,
}

impl Candidate {
    fn new(word: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            about: String::new(),
        }
    }

    fn about(self, about: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            ..self
        }
    }
}

fn answer(typed: &Typed<'_>) -> Answer {
    match typed.cursor {
        Cursor::Subcommand(begin) => Answer::Words(subcommands(typed.command, begin)),
        Cursor::Option(begin) => Answer::Words(options(typed, begin)),
        Cursor::Value { arg, prefix, begin } => value(typed, arg, prefix, begin),
        Cursor::Job(begin) => Answer::Job(begin),
        Cursor::Unknown => Answer::Words(Vec::new()),
    }
}

fn subcommands(command: &Command, begin: &str) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let fitting = shown.filter(|one| one.get_name().starts_with(begin));
    fitting
        .map(|one| {
            let about = one.get_about().map(ToString::to_string);
            Candidate::new(one.get_name()).about(about.unwrap_or_default())
        })
        .collect()
}

/// Those that are not typed yet, or may be typed again.
fn options(typed: &Typed<'_>, begin: &str) -> Vec<Candidate> {
    let is_open = |arg: &&Arg| {
        let is_typed = typed.options.contains(&arg.get_id());
        !arg.is_hide_set() && (!is_typed || typed::takes_many(arg))
    };
    let open = typed.command.get_arguments().filter(is_open);
    let words = open.filter_map(|arg| {
        let word = format!("--{}", arg.get_long()?);
        let about = arg.get_help().map(ToString::to_string);
        word.starts_with(begin)
            .then(|| Candidate::new(word).about(about.unwrap_or_default()))
    });
    words.collect()
}

fn value(typed: &Typed<'_>, arg: &Arg, prefix: &str, begin: &str) -> Answer {
    let is_positional = arg.is_positional();
    let values = arg.get_possible_values();
    let id = arg.get_id().as_str();
    let name = arg.get_value_names().and_then(<[_]>::first);
    let name = name.map(|name| name.as_str()).unwrap_or_default();
    let candidates = if !values.is_empty() {
        let shown = values.iter().filter(|value| !value.is_hide_set());
        let candidates = shown.map(|value| {
            let about = value.get_help().map(ToString::to_string);
            Candidate::new(value.get_name()).about(about.unwrap_or_default())
        });
        candidates.collect()
    } else if id == "path" || name == "PATH" {
        let mut paths = nodes::paths(wanted(typed, is_positional), begin, &typed.connection);
        prefixed(&mut paths, prefix);
        return Answer::Paths(paths);
    } else if typed.names == ["man"] {
        subcommands(pages(typed), begin)
    } else if let ["tx" | "name", _] = typed.names[..]
        && ["id", "name"].contains(&id)
        && is_positional
    {
        let path = typed.positionals.first().copied().unwrap_or("/");
        nodes::names_below(path, begin, &typed.connection)
    } else if name.contains('|') && arg.get_value_hint() == ValueHint::Unknown {
        // As `run|fail|COMMAND`: what is in lower case is meant literally.
        let literal = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
        name.split('|')
            .filter(literal)
            .map(Candidate::new)
            .collect()
    } else {
        match arg.get_value_hint() {
            ValueHint::Unknown | ValueHint::Other => Vec::new(),
            _ => return Answer::Files,
        }
    };
    let mut fitting = candidates;
    fitting.retain(|candidate: &Candidate| candidate.word.starts_with(begin));
    prefixed(&mut fitting, prefix);
    Answer::Words(fitting)
}

/// Which paths fit a positional argument of this command.
fn wanted(typed: &Typed<'_>, is_positional: bool) -> Wanted {
    match typed.names[..] {
        ["why" | "revoke" | "break"] if is_positional => Wanted::Holders,
        ["leader"] => Wanted::Leaders,
        _ => Wanted::Paths,
    }
}

fn prefixed(candidates: &mut [Candidate], prefix: &str) {
    for candidate in candidates {
        candidate.word.insert_str(0, prefix);
    }
}

/// The command whose subcommands follow the words behind `man`.
fn pages<'a>(typed: &Typed<'a>) -> &'a Command {
    let words = typed.positionals.iter();
    words.fold(typed.program, |command, word| {
        command.find_subcommand(word).unwrap_or(command)
    })
}
