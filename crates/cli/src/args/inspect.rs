//! The commands that show what is going on, and end what should not be.

use std::path::PathBuf;
use std::time::Duration;

use super::TreeArgs;
use crate::ensemble_host::EnsembleHost;
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
    /// The lock, read/write lock, semaphore or election; a leading slash may be left out.
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
/// The holder is told, and decides: a job says so on stderr, and `lock --hold` by a line on stdout. Nothing is taken away: see
/// `break`. On a terminal it asks first.
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

/// Take a lock, or an item of a queue, away from whoever holds it.
///
/// The holder is asked first, and has the grace to let go by itself. Then its node is deleted, it hears that its hold is
/// lost, and the next in line has it; who did so is recorded. A job of bellwether's is stopped within the grace, and lets go
/// when it has ended. A holder that does not listen goes on until it looks: that is what its token is for. On a terminal it
/// asks first.
///
/// Once the holder is asked, there is no way back: if this command ends before the grace does, by Ctrl-C or with its connection,
/// the request stays, and a job of bellwether's is stopped all the same. Of another holder nothing is taken away then.
///
/// Exit code: 0; 1 if nobody holds it, or the answer was no; 2 if it cannot ask and --yes is missing; 125 if bellwether
/// failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether break /jobs/nightly
  bellwether break --yes --grace 30s /jobs/nightly
  bellwether break /mail                       # items of a queue, from those who have them")]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How long the holder has to let go by itself.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Look for what is wrong, or soon will be, and say what to do about it.
///
/// Whether each server answers, how fast and of which version it is; limits that are near; how long sessions live against how
/// long answers take and this machine stands still; directories, data and sequence numbers near the protocol's limits;
/// crashed and stale holds, deadlocks, and items that were given up.
///
/// Exit code: 0 if all is fine; 1 if somebody should look; 3 if something does not work or is about to stop working; 125 if
/// bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether doctor
  bellwether doctor --json | jq '.findings[] | select(.severity != \"fine\")'")]
pub(crate) struct DoctorArgs {
    /// Where to look for holds and nodes; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Turn the data folder of a single server into those of an Apache ensemble.
///
/// Writes a folder for each host, with zoo.cfg, myid and a copy of the data: on every one of them, since two empty servers that
/// come up first would elect each other, and the third would throw its data away to follow them. The single server must have
/// been stopped; its folder stays as it is. Each folder is the dataDir of its server, which starts with
/// `zkServer.sh start FOLDER/zoo.cfg`.
///
/// Exit code: 0; 1 if there is a folder already, or the data cannot be used; 2 if the hosts make no ensemble; 125 if bellwether
/// failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether ensemble --data /var/lib/bellwether --into /tmp/ensemble zk1 zk2 zk3
  bellwether ensemble --data data --into nodes --in-place 127.0.0.1:2181:2888:3888 127.0.0.1:2182:2889:3889 127.0.0.1:2183:2890:3890")]
pub(crate) struct EnsembleArgs {
    /// The hosts, three or more, each with the port for clients and the two that servers use among each other, if they
    /// are not 2181, 2888 and 3888.
    #[arg(value_name = "HOST[:CLIENT[:PEER:ELECTION]]", required = true)]
    pub(crate) hosts: Vec<EnsembleHost>,
    /// The data folder of the server that was: the one with version-2 in it.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: PathBuf,
    /// Where its logs are, if they have a folder of their own (dataLogDir).
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_log: Option<PathBuf>,
    /// Write the folders into this one: 1, 2, 3.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: PathBuf,
    /// Where each host will keep its folder.
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/var/lib/zookeeper",
        conflicts_with = "in_place"
    )]
    pub(crate) data_dir: PathBuf,
    /// The folders stay where they are written.
    #[arg(long)]
    pub(crate) in_place: bool,
    /// The unit of time (tickTime); sessions live between 2 and 20 of it.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "2s")]
    pub(crate) tick_time: Duration,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
