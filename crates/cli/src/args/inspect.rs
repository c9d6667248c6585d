//! The commands that show what is going on, and end what should not be.

use std::time::Duration;

use super::TreeArgs;
use crate::{duration, node_path};

/// Show who holds what and who waits for it.
///
/// Every lock, read/write lock, semaphore and election at the path and below it: who holds it, since when and with which
/// token, and who waits; those of Curator and kazoo too. Barriers that are set, and who is missing at those where a
/// number of members meet; queues and tasks with their numbers. Crashed holds, and those who wait for each other in a
/// circle, so that none of them will ever get through.
///
/// With --watch, it stays and shows what changes: on a terminal as a live view (arrows scroll, q ends), else as one line
/// a change, or with --json as one object a change.
///
/// Exit code: 0; 1 if there is a circle of waiting; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether locks /jobs
  bellwether locks --watch
  bellwether locks --json | jq -r '.sights[] | select(.waiters != []) | .path'")]
pub(crate) struct LocksArgs {
    /// Where to look; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Stay, and show what changes.
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Tell why a lock is not free: who holds it, and what that one waits for in turn.
///
/// Follows the chain of holders to its end: somebody who is at work, or a circle, in which everybody waits for the next.
///
/// Exit code: 0; 1 if nobody holds it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether why /jobs/nightly")]
pub(crate) struct WhyArgs {
    /// The lock, or whatever else is waited for; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Where to look for what the holders wait for.
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = node_path::parse)]
    pub(crate) within: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Whom to turn to.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// The lock, or whatever else is held; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The name of one node in the line, as `locks --json` shows it, instead of all who hold.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// A word to whoever is asked.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Ask whoever holds a lock to let go.
///
/// The holder is told, and decides. Nothing is taken away: see `break`. On a terminal it asks first.
///
/// Exit code: 0; 1 if nobody holds it, or the answer was no; 2 if it cannot ask and --yes is missing; 125 if bellwether
/// failed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether revoke /jobs/nightly -m 'the machine goes down at six'"
)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Take a lock away from whoever holds it.
///
/// The holder is asked first, and has the grace to let go by itself. Then its node is deleted, it hears that its hold is
/// lost, and the next in line has it; who did so is recorded. A job of `bellwether lock` is stopped. A holder that does
/// not listen goes on until it looks: that is what its token is for. On a terminal it asks first.
///
/// Exit code: 0; 1 if nobody holds it, or the answer was no; 2 if it cannot ask and --yes is missing; 125 if bellwether
/// failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether break /jobs/nightly
  bellwether break --yes --grace 30s /jobs/nightly")]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How long the holder has to let go by itself.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}
