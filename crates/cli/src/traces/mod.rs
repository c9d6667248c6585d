//! Logs of this process, on stderr, and with the feature `otlp` its spans, for an OpenTelemetry collector.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod export;

mod log_level;

use std::ffi::OsString;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::output::Output;

pub(crate) use log_level::LogLevel;

/// The spans of this process, until it ends.
#[derive(Debug)]
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    export: Option<export::Export>,
}

impl Traces {
    /// Installs the subscriber.
    #[cfg(feature = "otlp")]
    pub(crate) fn start(args: &Args, output: Output) -> Self {
        let export = export::Export::start(args, filter(&args.command), output);
        if export.is_none() {
            log_to_stderr(&args.command);
        }
        Self { export }
    }

    /// Installs the subscriber.
    #[cfg(not(feature = "otlp"))]
    pub(crate) fn start(args: &Args, _: Output) -> Self {
        log_to_stderr(&args.command);
        Self {}
    }

    /// Sends the spans that are left, within a time limit.
    pub(crate) fn end(self, exit: Exit, output: Output) {
        #[cfg(feature = "otlp")]
        if let Some(export) = self.export {
            export.end(exit, output);
        }
        #[cfg(not(feature = "otlp"))]
        let _ = (exit, output);
    }
}

/// The variables by which a job continues the trace of this process.
pub(crate) fn variables() -> Vec<(&'static str, Option<OsString>)> {
    #[cfg(feature = "otlp")]
    return export::variables();
    #[cfg(not(feature = "otlp"))]
    Vec::new()
}

fn log_to_stderr(command: &Command) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(command))
        .with_writer(std::io::stderr)
        .with_ansi(is_colored());
    if !matches!(command, Command::Serve(_)) {
        return lines.init();
    }
    let lines = lines.with_filter_reloading();
    let filter = lines.reload_handle();
    log_level::replace_with(Box::new(move |new| Ok(filter.reload(new)?)));
    lines.init();
}

fn is_colored() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// `RUST_LOG`, or by default the warnings of a server. Other commands print what their users need to know, and log nothing.
fn filter(command: &Command) -> EnvFilter {
    let default = match command {
        Command::Serve(_) => log_level::DEFAULT,
        // Actions of users of the pages, for which this process is responsible.
        Command::Dashboard(_) => "bellwether_dashboard=info",
        _ => "off",
    };
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}
