//! The bellwether command.

mod args;
mod commands;
mod config_file;
mod connect;
mod duration;
mod exit;
mod family;
mod front;
mod job;
mod keeper;
mod link;
mod local;
mod local_server;
mod output;
mod rendering;
mod repair;
mod signals;
mod terminal;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::output::Output;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
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
        .with_env_filter(filter())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
    let output = Output::new(args.quiet);
    let result = match args.command {
        Command::Lock(args) if args.hold => commands::lock::hold(args, output),
        Command::Lock(_) if !args.keeper => front::run(output),
        Command::Lock(args) => commands::lock::run(args, output),
        Command::Local(args) => commands::local::run(args, output),
        Command::Log(args) => commands::log::run(args),
        Command::Snapshot(args) => commands::snapshot::run(args),
        Command::Serve(args) => commands::serve::run(args, output),
    };
    result
        .unwrap_or_else(|error| {
            output.error(&error);
            Exit::Failed
        })
        .into()
}

/// `RUST_LOG`, or else warnings. What the client library warns of when a connection breaks, commands report themselves.
fn filter() -> EnvFilter {
    EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,zookeeper_client=error"))
}
