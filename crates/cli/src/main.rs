//! The bellwether command.

mod acl_list;
mod any_lock;
mod args;
mod aside;
mod asked;
mod batch;
mod commands;
mod config_file;
mod connect;
mod credential;
mod duration;
mod ensemble_host;
mod exit;
mod export_file;
mod family;
mod four_letter;
mod front;
mod habits;
mod help;
mod import_plan;
mod input;
mod job;
mod keeper;
mod lineage;
mod link;
mod local;
mod local_dial;
mod local_server;
mod local_users;
mod nested;
mod node_path;
mod node_stat;
mod notes;
mod outage;
mod output;
mod overview;
mod patience;
mod payload;
mod people;
mod presence;
mod presented;
mod previous;
mod progress;
mod prompt;
mod refusal;
mod rendering;
mod repair;
mod screen;
mod security;
mod session;
mod sighting;
mod signals;
mod socket_path;
mod terminal;
mod transaction_text;
mod waiting;
mod walk;
mod workplace;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use bellwether::ConnectError;
use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command, QueueCommand, TasksCommand};
use crate::exit::Exit;
use crate::output::Output;
use crate::refusal::Refusal;

/// The server frees on one thread what another allocated, which is where the system's own allocator makes threads wait
/// for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            if let Some(refusal) = habits::answer(&error) {
                return fail(&refusal.into(), Output::new(true)).into();
            }
            let error = match error.kind() {
                // Read again, by a command line that differs in its help alone.
                ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    let again = help::grouped().try_get_matches();
                    again.err().unwrap_or(error)
                }
                _ => error,
            };
            // Help and version come this way too, on stdout; a closed pipe is a quiet end.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            }
            .into();
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter(&args.command))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
    let output = Output::new(args.quiet);
    if let Err(refusal) = habits::check_separator(args.command.job(), std::env::args_os()) {
        return fail(&refusal.into(), output).into();
    }
    let result = match args.command {
        Command::Lock(args) if args.clear => commands::lock::clear(args, output),
        Command::Lock(args) if args.hold => commands::lock::hold(args, output),
        command if command.runs_a_job() && !args.keeper => front::run(output),
        Command::Lock(args) => commands::lock::run(args, output),
        Command::Elect(args) => commands::elect::run(args, output),
        Command::Rendezvous(args) => commands::rendezvous::run(args, output),
        Command::Once(args) => commands::once::run(args, output),
        Command::Note(args) => commands::note::run(args),
        Command::Local(args) => commands::local::run(args, output),
        Command::Barrier(args) => commands::barrier::run(args, output),
        Command::Queue(args) => commands::queue::run(args, output),
        Command::Tasks(args) => commands::tasks::run(args, output),
        Command::Tx(args) => commands::tx::run(args, output),
        Command::Group(args) => commands::group::run(args, output),
        Command::Name(args) => commands::name::run(args, output),
        Command::Config(args) => commands::config::run(args, output),
        Command::Counter(args) => commands::counter::run(args, output),
        Command::Locks(args) => commands::locks::run(args, output),
        Command::Why(args) => commands::why::run(args, output),
        Command::Revoke(args) => commands::revoke::revoke(args, output),
        Command::Break(args) => commands::revoke::break_hold(args, output),
        Command::Doctor(args) => commands::doctor::run(args, output),
        Command::Ensemble(args) => commands::ensemble::run(args, output),
        Command::Ls(args) => commands::ls::run(args, output),
        Command::Tree(args) => commands::tree::run(args, output),
        Command::Get(args) => commands::get::run(args, output),
        Command::Set(args) => commands::set::run(args, output),
        Command::Create(args) => commands::create::run(args, output),
        Command::Rm(args) => commands::rm::run(args, output),
        Command::Stat(args) => commands::stat::run(args, output),
        Command::Watch(args) => commands::watch::run(args, output),
        Command::Acl(args) => commands::acl::run(args, output),
        Command::Export(args) => commands::export::run(args, output),
        Command::Import(args) => commands::import::run(args, output),
        Command::Completions(args) => commands::completions::run(args),
        Command::Man(args) => commands::man::run(args),
        Command::Log(args) => commands::log::run(args),
        Command::Snapshot(args) => commands::snapshot::run(args),
        Command::Serve(args) => commands::serve::run(args, output),
    };
    result.unwrap_or_else(|error| fail(&error, output)).into()
}

/// Says what went wrong and what to do about it; the exit that it means.
fn fail(error: &anyhow::Error, output: Output) -> Exit {
    output.error(error);
    if let Some(hint) = next_step(error) {
        output.hint(hint);
    }
    let refusal = error.downcast_ref::<Refusal>();
    refusal.map_or(Exit::Failed, Refusal::exit)
}

impl Command {
    /// Whether it runs another command, under a keeper.
    fn runs_a_job(&self) -> bool {
        !self.job().is_empty()
    }

    /// The command that it runs under a keeper, if it runs one.
    fn job(&self) -> &[OsString] {
        match self {
            Self::Lock(args) => &args.command,
            Self::Elect(args) => &args.command,
            Self::Rendezvous(args) => &args.command,
            Self::Once(args) => &args.command,
            Self::Queue(args) => match &args.command {
                QueueCommand::Take(args) => &args.command,
                _ => &[],
            },
            Self::Tasks(args) => match &args.command {
                TasksCommand::Run(args) => &args.command,
                _ => &[],
            },
            _ => &[],
        }
    }
}

/// What to do about an error.
fn next_step(error: &anyhow::Error) -> Option<String> {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return refusal.next_step().map(str::to_owned);
    }
    match error.downcast_ref()? {
        ConnectError::Unreachable { .. } => Some(
            "`bellwether serve --listen ADDRESS:PORT` starts a server; without --connect, a local one is used"
                .to_owned(),
        ),
        _ => None,
    }
}

/// `RUST_LOG`, or else the warnings of a server. Other commands log nothing: what their users have to know, they say.
fn filter(command: &Command) -> EnvFilter {
    let default = match command {
        Command::Serve(_) => "warn,bellwether_client=error",
        _ => "off",
    };
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}
