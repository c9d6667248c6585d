//! Arguments of `demo`.

use std::time::Duration;

use crate::value::duration;

/// Show what bellwether does, in two minutes, on a server of its own.
///
/// Starts a server in a temporary folder, and runs real commands on it: a lock with a waiter, a holder that is killed and what the next one
/// learns, an election with a take-over, and a queue with a dead letter. Each command is explained, shown and run. Output of
/// commands in the background has their number in brackets. At the end, and on a signal, everything that was started is stopped, and the
/// folder is deleted.
///
/// Other servers, the local server and settings are not used. On a terminal, Enter goes on before the pause is over.
///
/// Exit code: 0; 128+n if signal n ended it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether demo
  bellwether demo --dashboard --pace 10s")]
pub(crate) struct DemoArgs {
    /// Also serve the dashboard of this server at a free port, and print the link.
    #[arg(long)]
    pub(crate) dashboard: bool,
    /// How long to pause after each command.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5s")]
    pub(crate) pace: Duration,
}
