//! Arguments of the commands that show holds and problems, and end holds.

use std::path::PathBuf;
use std::time::Duration;

use super::TreeArgs;
use crate::value::duration;
use crate::value::ensemble_host::EnsembleHost;
use crate::value::node_path;

/// Show locks, elections, queues and other recipes: holders, waiters, problems.
///
/// Lists every lock, read/write lock, semaphore and election at the path and below it, also those of Curator and kazoo: its holders,
/// since when and with which token, and its waiters. Also barriers and their members, queues and tasks with their counts, crashes of
/// previous holders, and deadlocks.
///
/// With --watch, it keeps running and shows changes: on a terminal on the screen of `bellwether top`, elsewhere one line per change,
/// and with --json one object per change.
///
/// Exit code: 0; 1 if there is a deadlock, but not with --watch; 128+n if signal n ended it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether locks /jobs
  bellwether locks --watch
  bellwether locks --json | jq -r '.sights[] | select(.waiters != []) | .path'")]
pub(crate) struct LocksArgs {
    /// The path to look at, with all below it; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Keep running, and show changes.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Look at no more than N directories, those nearest to the path first.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_directories: usize,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show holders and waiters on a live screen.
///
/// A summary line, and a table with problems first: deadlocks, crashes, holders that were asked to release; then holders and waiters.
/// Arrow keys select a row, `/` filters, `w` shows why the path is not free, `r` asks the holder to release, `b` breaks the hold; both
/// ask for confirmation. `q` quits. The same as `locks --watch`.
///
/// Exit code: 0; 128+n if signal n ended it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether top /jobs")]
pub(crate) struct TopArgs {
    /// The path to look at, with all below it; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Look at no more than N directories, those nearest to the path first.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_directories: usize,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show why a lock is not free: its holder, and what the holder waits for.
///
/// Follows the chain from holder to holder, until a holder that waits for nothing, or a deadlock.
///
/// Exit code: 0; 1 if the lock is not held; 2 if it is not below --within; 125 if bellwether failed, or did not reach the lock within
/// --max-directories.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether why /jobs/nightly")]
pub(crate) struct WhyArgs {
    /// The path of a lock, semaphore or election; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Look for waits of the holders at this path and below it.
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = node_path::parse)]
    pub(crate) within: String,
    /// Look at no more than N directories, those nearest to --within first.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_directories: usize,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Print the leader of an election, and follow changes.
///
/// With --watch, prints a line for the present leader and for each later one, until a signal arrives or the output is closed. With
/// --json also while there is no leader: then all fields except `path` are null.
///
/// Exit code: 0; 1 if there is no leader, or with --value if it has none; 124 if there was none within --wait; 128+n if signal n ended it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  curl \"http://$(bellwether leader --value services/scheduler)/health\"
  bellwether leader --watch --json services/scheduler | while read -r leader; do ./switch.sh \"$leader\"; done")]
pub(crate) struct LeaderArgs {
    /// The path of the election; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Keep running, and print each new leader.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// If there is no leader, wait for one up to this time.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "watch")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait, which is what it does without --wait and --watch.
    #[arg(short = 'n', long = "try", conflicts_with_all = ["watch", "wait"])]
    pub(crate) at_once: bool,
    /// Print only the value of the leader, which `elect --value` sets.
    #[arg(long, conflicts_with = "json")]
    pub(crate) value: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Which holders are meant.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// The path of the lock, semaphore, election or queue; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Only the contender whose node has this name (`node` in `locks --json`), instead of all holders.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// A message for the holder.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Ask the holder of a lock to release it.
///
/// The holder decides: a job prints the request on stderr, and `lock --hold` prints a line on stdout. To end a hold, use `break`. Asks
/// for confirmation on a terminal.
///
/// Exit code: 0; 1 if the lock is not held, or the answer was no; 2 without a terminal if --yes is missing; 125 if bellwether failed.
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

/// Break the hold on a lock, or on an item of a queue.
///
/// First asks the holder to release within the grace. A job of bellwether is stopped within the grace, and then its lock is released.
/// After the grace the holder's node is deleted: the holder learns that its hold is lost, and the next waiter acquires the lock. Who
/// broke the hold is recorded. A holder that never checks continues to work, which is why writes need a fencing token. Asks for
/// confirmation on a terminal.
///
/// The request cannot be withdrawn: if this command ends before the grace, by Ctrl-C or because its connection is lost, a job of
/// bellwether is stopped anyway. Other holders keep their hold then.
///
/// Exit code: 0; 1 if it is not held, or the answer was no; 2 without a terminal if --yes is missing; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether break /jobs/nightly
  bellwether break --yes --grace 30s /jobs/nightly
  bellwether break /mail                       # the claimed items of a queue")]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How long the holder has to release by itself.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Look for problems, and say what to do about them.
///
/// Checks whether each server answers, how fast, and its version; limits of servers that are nearly reached; the session timeout
/// against the latency of answers and pauses of this machine; directories, data and sequence numbers near the limits of the protocol;
/// crashed and stale holds, deadlocks, and dead letters.
///
/// Exit code: 0 if all is fine; 1 if there are warnings; 3 if something does not work or is about to stop working; 125 if bellwether
/// failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether doctor
  bellwether doctor --json | jq '.findings[] | select(.severity != \"fine\")'")]
pub(crate) struct DoctorArgs {
    /// Check nodes and holds at this path and below it; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Look for holds in no more than N directories, those nearest to the path first.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_directories: usize,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Turn the data folder of a single server into the folders of an Apache ensemble.
///
/// Writes a folder for each host, with zoo.cfg, myid and a copy of the data. Every server needs a copy: two empty servers that start
/// first would elect a leader among themselves, and the third would discard its data to follow them. Stop the single server first; its
/// folder is not changed. Each folder is the dataDir of its server, which starts with `zkServer.sh start FOLDER/zoo.cfg`.
///
/// Exit code: 0; 1 if a folder exists already, or the data cannot be used; 2 if the hosts make no ensemble; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether ensemble --data /var/lib/bellwether --into /tmp/ensemble zk1 zk2 zk3
  bellwether ensemble --data data --into nodes --in-place 127.0.0.1:2181:2888:3888 127.0.0.1:2182:2889:3889 127.0.0.1:2183:2890:3890")]
pub(crate) struct EnsembleArgs {
    /// The hosts, at least three, each with its ports for clients, followers and elections unless they are 2181, 2888 and 3888.
    #[arg(value_name = "HOST[:CLIENT[:PEER:ELECTION]]", required = true)]
    pub(crate) hosts: Vec<EnsembleHost>,
    /// The data folder of the single server, which contains version-2.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: PathBuf,
    /// The folder of its logs, if that is another one (dataLogDir).
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_log: Option<PathBuf>,
    /// Write the folders 1, 2, 3 and so on into this one.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: PathBuf,
    /// The path that the folder will have on its host.
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/var/lib/zookeeper",
        conflicts_with = "in_place"
    )]
    pub(crate) data_dir: PathBuf,
    /// The folders stay where they are written: all servers run on this host.
    #[arg(long)]
    pub(crate) in_place: bool,
    /// The time unit of the servers (tickTime); session timeouts are between 2 and 20 ticks.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "2s")]
    pub(crate) tick_time: Duration,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
