//! The bellwether command.

mod args;
mod commands;
mod connect;
mod exit;
mod hold;
mod job;
mod local;
mod output;
mod signals;
mod traces;
mod tree;
mod value;

use std::process::ExitCode;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::output::Output;
use crate::traces::Traces;

/// The server frees memory on another thread than it was allocated on. The system's allocator makes threads wait for each other then.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(exit) = job::birth::run() {
        return exit;
    }
    let args = match args::command_line::read() {
        Ok(args) => args,
        Err(exit) => return exit.into(),
    };
    let output = Output::new(args.quiet);
    let traces = Traces::start(&args, output);
    let exit = run(args, output).unwrap_or_else(|error| output.fail(&error));
    traces.end(exit, output);
    exit.into()
}

fn run(args: Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(parent) = args.worker
        && !args.keeper
    {
        job::workers::end_with_parent(parent)?;
    }
    if let Some(count) = args.workers_to_start() {
        return job::workers::run(count);
    }
    if args.needs_keeper() {
        return job::front::run(output);
    }
    match args.command {
        Command::Lock(args) if args.clear => commands::jobs::lock::clear(args, output),
        Command::Lock(args) if args.explain => commands::jobs::lock::explain(args, output),
        Command::Lock(args) if args.hold => commands::jobs::lock::hold(args, output),
        Command::Lock(args) => commands::jobs::lock::run(args, output),
        Command::Elect(args) => commands::jobs::elect::run(args, output),
        Command::Rendezvous(args) => commands::coordinate::rendezvous::run(args, output),
        Command::Once(args) => commands::jobs::once::run(args, output),
        Command::Note(args) => commands::jobs::note::run(args),
        Command::Local(args) => commands::server::local::run(args, output),
        Command::Barrier(args) => commands::coordinate::barrier::run(args, output),
        Command::Queue(args) => commands::coordinate::queue::run(args, output),
        Command::Tasks(args) => commands::coordinate::tasks::run(args, output),
        Command::Tx(args) => commands::coordinate::tx::run(args, output),
        Command::Group(args) => commands::coordinate::group::run(args, output),
        Command::Name(args) => commands::coordinate::name::run(args, output),
        Command::Config(args) => commands::coordinate::config::run(args, output),
        Command::Counter(args) => commands::coordinate::counter::run(args, output),
        Command::Locks(args) => commands::look::locks::run(args, output),
        Command::Leader(args) => commands::look::leader::run(args, output),
        Command::Top(args) => commands::look::locks::top(args, output),
        Command::Why(args) => commands::look::why::run(args, output),
        Command::Revoke(args) => commands::look::revoke::revoke(args, output),
        Command::Break(args) => commands::look::revoke::break_hold(args, output),
        Command::Doctor(args) => commands::look::doctor::run(args, output),
        Command::Dashboard(args) => commands::look::dashboard::run(args, output),
        Command::Demo(args) => commands::demo::run(args, output),
        Command::Ensemble(args) => commands::server::ensemble::run(args, output),
        Command::Torture(args) => commands::server::torture::run(args, output),
        Command::Ls(args) => commands::nodes::ls::run(args, output),
        Command::Tree(args) => commands::nodes::tree::run(args, output),
        Command::Get(args) => commands::nodes::get::run(args, output),
        Command::Put(args) => commands::nodes::set::run(args.or_create(), output),
        Command::Version => Ok(output::answer_line(args::version())?),
        Command::Set(args) => commands::nodes::set::run(args, output),
        Command::Create(args) => commands::nodes::create::run(args, output),
        Command::Rm(args) => commands::nodes::rm::run(args, output),
        Command::Stat(args) => commands::nodes::stat::run(args, output),
        Command::Watch(args) => commands::nodes::watch::run(args, output),
        Command::Acl(args) => commands::nodes::acl::run(args, output),
        Command::Export(args) => commands::nodes::export::run(args, output),
        Command::Import(args) => commands::nodes::import::run(args, output),
        Command::Complete(args) => commands::complete::run(args),
        Command::Completions(args) => commands::completions::run(args),
        Command::Man(args) => commands::man::run(args),
        Command::Log(args) => commands::server::log::run(args, output),
        Command::Snapshot(args) => commands::server::snapshot::run(args, output),
        Command::Serve(args) => commands::server::serve::run(args, output),
    }
}
