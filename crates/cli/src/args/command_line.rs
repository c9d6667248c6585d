//! Reads the command line, with defaults from `bellwether.toml`.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::args::config_file::ConfigFile;
use crate::args::{Args, Command, OnCrash, habits, help, mistakes, old_spellings};
use crate::exit::Exit;
use crate::output::Output;
use crate::output::refusal::Refusal;

/// The arguments; or the exit code, after the help or an error was printed.
pub(crate) fn read() -> Result<Args, Exit> {
    let (file, broken) = match ConfigFile::read() {
        Ok(file) => (file, None),
        Err(error) => (ConfigFile::default(), Some(error)),
    };
    let matches = file.apply(Args::command()).try_get_matches_from(typed());
    let matches = matches.map_err(|error| explain(error, &file))?;
    let fail = |error: anyhow::Error| Output::new(true).fail(&error);
    if let Some(error) = broken.filter(|_| uses_servers(&matches)) {
        return Err(fail(error));
    }
    file.keep();
    let mut args = Args::from_arg_matches(&matches).map_err(|error| print(&error))?;
    #[cfg(feature = "otlp")]
    {
        args.name = old_spellings::name(&matches);
    }
    // Once, and not again by the keeper of a job.
    if !args.keeper
        && !args.quiet
        && let Some(hint) = old_spellings::hint(&matches, typed())
    {
        Output::new(false).hint(hint);
    }
    if let Command::Lock(lock) = &mut args.command {
        lock.drop_unusable_defaults(is_default(&matches, "on_crash"));
    }
    check_job(&mut args.command).map_err(|refusal| fail(refusal.into()))?;
    Ok(args)
}

/// The words of the command line.
fn typed() -> impl Iterator<Item = OsString> {
    habits::with_shell_command(std::env::args_os().collect()).into_iter()
}

/// Checks what stands before and after `--` in a command line with a job.
fn check_job(command: &mut Command) -> Result<(), Refusal> {
    if let Command::Lock(lock) = command {
        habits::check_path(&lock.command, typed())?;
        return habits::take_paths(lock, typed());
    }
    if let Some(job) = command.job() {
        habits::check_path(job, typed())?;
    }
    habits::check_separator(command.job().unwrap_or_default(), typed())
}

/// Prints why there are no arguments, which may be that help was asked for.
fn explain(error: clap::Error, file: &ConfigFile) -> Exit {
    let output = Output::new(true);
    let without_path = habits::answer_without_path(&error, typed());
    if let Some(refusal) = habits::answer(&error).or(without_path) {
        return output.fail(&refusal.into());
    }
    match error.kind() {
        // Read again, by a command line that differs in its help alone.
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let again = help::grouped().try_get_matches_from(typed());
            print(&again.err().unwrap_or(error))
        }
        // What is typed is sound: the value comes from the file.
        ErrorKind::ValueValidation | ErrorKind::InvalidValue
            if Args::command().try_get_matches_from(typed()).is_ok() =>
        {
            output.fail(&file.error(&error))
        }
        _ => {
            let error = mistakes::explained(error, typed());
            let exit = print(&error);
            if let Some(hint) = habits::hint(&error, typed()) {
                output.hint(hint);
            }
            exit
        }
    }
}

/// Prints help and version on stdout, and errors on stderr. A closed pipe is a quiet end.
fn print(error: &clap::Error) -> Exit {
    let _ = error.print();
    match error.use_stderr() {
        true => Exit::Usage,
        false => Exit::Done,
    }
}

/// Whether a command connects to servers. Other commands do without a file that cannot be understood.
fn uses_servers(matches: &ArgMatches) -> bool {
    let Some((name, matches)) = matches.subcommand() else {
        return false;
    };
    name == "local" || matches.try_contains_id("connect").is_ok() || uses_servers(matches)
}

/// Whether an option has its default value, which is from the file where it has no other one.
fn is_default(matches: &ArgMatches, option: &str) -> bool {
    let command = matches.subcommand().map(|(_, matches)| matches);
    let source = command.and_then(|matches| matches.value_source(option));
    source == Some(ValueSource::DefaultValue)
}

impl crate::args::LockArgs {
    /// Drops defaults for crashes where this lock cannot use them. What is typed is refused there instead.
    fn drop_unusable_defaults(&mut self, is_default: bool) {
        let knows_no_crash = self.layout.is_some() || self.of.is_some();
        // A repair needs the lock alone, and a command to run.
        let cannot_repair = self.read || self.hold;
        let is_repair = matches!(self.on_crash, Some(OnCrash::Repair(_)));
        if knows_no_crash || (is_default && is_repair && cannot_repair) {
            self.on_crash = None;
        }
        if knows_no_crash {
            self.lock_delay = None;
        }
    }
}

impl Args {
    /// The number of worker processes, if this process only starts them.
    pub(crate) fn workers_to_start(&self) -> Option<u32> {
        let count = self.command.workers();
        (count > 1 && self.worker.is_none() && !self.keeper).then_some(count)
    }

    /// Whether this process is the front of a job.
    pub(crate) fn needs_keeper(&self) -> bool {
        let job = self.command.job().unwrap_or_default();
        !job.is_empty() && !self.keeper
    }
}

impl Command {
    /// The number of worker processes.
    fn workers(&self) -> u32 {
        use crate::args::{QueueArgs, QueueCommand, TasksArgs, TasksCommand};
        match self {
            Self::Queue(QueueArgs {
                command: QueueCommand::Work(args),
            }) => args.workers.jobs.get(),
            Self::Tasks(TasksArgs {
                command: TasksCommand::Run(args),
            }) => args.workers.jobs.get(),
            _ => 1,
        }
    }

    /// The command that it runs under a keeper; empty if it runs none this time, `None` if it never does.
    pub(crate) fn job(&self) -> Option<&[OsString]> {
        use crate::args::{QueueCommand, TasksCommand};
        match self {
            // It is only explained.
            Self::Lock(args) if args.explain => Some(&[]),
            Self::Lock(args) => Some(&args.command),
            Self::Elect(args) => Some(&args.command),
            Self::Rendezvous(args) => Some(&args.command),
            Self::Once(args) => Some(&args.command),
            Self::Queue(args) => match &args.command {
                QueueCommand::Take(args) => Some(&args.command),
                QueueCommand::Work(args) => Some(&args.command),
                _ => None,
            },
            Self::Tasks(args) => match &args.command {
                TasksCommand::Run(args) => Some(&args.command),
                _ => None,
            },
            _ => None,
        }
    }
}
