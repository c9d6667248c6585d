//! Arguments of the commands that run another command.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;

use super::ConnectArgs;
use crate::value::duration;
use crate::value::node_path;

/// Options of every command that runs a job.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// A message for people, shown by `locks` and to waiters.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// How long the command may take to end after SIGTERM, before it gets SIGKILL. At most a third of the session timeout; 3s by
    /// default, or less if the session timeout is short.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
    /// Stop the command if it runs longer than this: with SIGTERM, and after the grace with SIGKILL. 0 means no limit.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) max_time: Option<Duration>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// How long to wait, or not at all.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    /// Do not wait: fail with the code of -E if that would be necessary.
    #[arg(short = 'n', long = "try", aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    pub(crate) at_once: bool,
}

/// How long to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Give up after this time, such as 30s, 1h30m or 0.5; a number without a unit means seconds.
    #[arg(short, long, alias = "timeout", value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the wait limit passes. It is 125 if no server answers.
    #[arg(short = 'E', long, value_name = "N", default_value_t = 124)]
    pub(crate) conflict_exit_code: u8,
}

/// Run a command under a lock, or hold the lock for a script.
///
/// Commands with the same path run one at a time, in order of arrival. The environment of the command has the fencing token
/// (BELLWETHER_TOKEN), the path (BELLWETHER_PATH), and whether the previous holder finished: `clean`, `crashed`, `repaired` by
/// --on-crash, or `unknown` (BELLWETHER_PREVIOUS). The command uses the terminal as usual, and receives the signals that are sent to bellwether. Before
/// the lock is lost, the command gets SIGTERM; after the grace, the command and all processes that it started get SIGKILL. The same
/// happens if bellwether itself is killed; if both of its processes are killed at once, only the command itself gets SIGKILL.
///
/// With several locks before `--`, they are acquired in the order of their paths, so that commands which need the same locks cannot
/// deadlock. BELLWETHER_PATHS has the paths, one per line, and BELLWETHER_TOKENS the tokens.
///
/// Exit code: that of the command; 128+n if signal n ended it; 121 if it ran longer than --max-time; 122 if it was not run because
/// the previous holder crashed; 123 if the lock was lost; 124 if the lock was not acquired in time; 125 if bellwether failed; 126 if
/// the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(override_usage = "bellwether lock [OPTIONS] <PATH>... -- <COMMAND>...
       bellwether lock [OPTIONS] <PATH> <COMMAND>...
       bellwether lock [OPTIONS] <PATH> --hold | --explain | --clear")]
#[command(after_help = "Examples:
  bellwether lock jobs/nightly -- ./backup.sh --full
  bellwether lock jobs/nightly --wait 10m -- ./backup.sh
  bellwether lock jobs/nightly --try -E 0 -- ./backup.sh
  bellwether lock jobs/nightly --max-time 2h -- ./backup.sh
  bellwether lock jobs/nightly --explain
  bellwether lock jobs/nightly --on-crash ./repair.sh -- ./backup.sh
  bellwether lock config --read -- ./check.sh
  bellwether lock accounts/7 accounts/3 -- ./transfer.sh
  bellwether lock downloads --of 5 -- ./fetch.sh
  bellwether lock jobs/nightly --auth-file ops.auth --acl auth::cdrwa -- ./backup.sh
  bellwether lock deploy --session-timeout 30s --grace 10s -- ./deploy.sh
  coproc bellwether lock jobs/nightly --hold; read -r token <&\"${COPROC[0]}\"")]
pub(crate) struct LockArgs {
    /// The path of the lock; the leading slash is optional. Before `--` there may be several.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The other locks before `--`.
    #[arg(skip)]
    pub(crate) also: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Acquire the read side of a read/write lock, shared with other readers.
    #[arg(short = 's', long, alias = "shared", group = "kind")]
    pub(crate) read: bool,
    /// Acquire the write side of a read/write lock.
    #[arg(short = 'x', long, alias = "exclusive", group = "kind")]
    pub(crate) write: bool,
    /// Use a semaphore: at most M permits at a time. The first command sets M, which is stored on the servers.
    #[arg(long, value_name = "M", group = "kind", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) of: Option<u32>,
    /// With --of: acquire N of the M permits.
    #[arg(long, value_name = "N", requires = "of", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: u32,
    /// Share the lock with users of another library. Crashes are not detected then.
    #[arg(long, value_enum, value_name = "LIBRARY", conflicts_with = "of")]
    pub(crate) layout: Option<LayoutName>,
    /// What to do if the previous holder crashed: `run` the command anyway (the default), `fail` with 122, or run this shell
    /// command first, which repairs what the holder left behind.
    #[arg(
        long,
        value_name = "run|fail|COMMAND",
        conflicts_with_all = ["layout", "of"]
    )]
    pub(crate) on_crash: Option<OnCrash>,
    /// After a crash, wait this time before running anything.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = duration::parse,
        conflicts_with_all = ["layout", "of"]
    )]
    pub(crate) lock_delay: Option<Duration>,
    /// Run nothing: delete the record of a crash, after you have repaired what it left behind.
    #[arg(long, conflicts_with_all = ["hold", "wait", "at_once", "kind", "layout", "on_crash", "lock_delay", "message", "grace", "max_time"])]
    pub(crate) clear: bool,
    /// Run nothing: print the token when the lock is acquired, and hold the lock until stdin ends or a signal arrives.
    #[arg(long, conflicts_with_all = ["grace", "max_time"])]
    pub(crate) hold: bool,
    /// Run nothing and acquire nothing: say what would happen now, who is ahead, and how long holds at this path have taken lately.
    ///
    /// How long holds took is read from the log of the local server, or of a server on this host whose files this user may read. Exit code:
    /// 0 if the command would run at once; 124 (or that of -E) if it would wait; 122 if a crash keeps it from running; 2 if it would be refused.
    #[arg(long, conflicts_with = "clear")]
    pub(crate) explain: bool,
    /// With --hold, --clear or --explain: print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(
        trailing_var_arg = true,
        required_unless_present_any = ["hold", "clear", "explain"],
        conflicts_with_all = ["hold", "clear"],
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Which library's node names the lock uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// Apache Curator: InterProcessMutex, InterProcessReadWriteLock.
    Curator,
    /// Python's kazoo: Lock, ReadLock, WriteLock.
    Kazoo,
}

/// What to do after a crash of the previous holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnCrash {
    Run,
    Fail,
    /// Run this shell command first.
    Repair(String),
}

impl From<String> for OnCrash {
    fn from(text: String) -> Self {
        match text.as_str() {
            "run" => Self::Run,
            "fail" => Self::Fail,
            _ => Self::Repair(text),
        }
    }
}

/// Record the progress of a job, from within the job.
///
/// The last note is stored with the lock. If the job crashes, the next holder finds it in BELLWETHER_PREVIOUS_NOTE, and `locks` and
/// crash notices show it. Notes work under `lock`, `lock --write`, `elect` and `once`, but not with --read, --of and --layout.
///
/// Exit code: 0 when the note is recorded; 1 if the lock is lost or stores no notes; 2 outside of a job; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  bellwether lock jobs/nightly -- sh -c 'bellwether note dumping; ./dump; bellwether note copying; ./copy'")]
pub(crate) struct NoteArgs {
    /// The note; `-` reads it from stdin.
    pub(crate) text: OsString,
    /// The socket of the keeper of the job, set in its environment.
    #[arg(long, hide = true, env = "BELLWETHER_KEEPER")]
    pub(crate) keeper_socket: Option<String>,
}

/// Run a command while this candidate is the leader.
///
/// Candidates wait in line, and the first one leads and runs its command. If it loses the leadership, its command is stopped as with
/// `lock`, and it becomes a candidate again, in a new session if necessary. It ends when its command ends by itself. --wait and --try limit
/// the wait before it leads for the first time.
///
/// Exit code: that of the command; 128+n if signal n ended it, or the wait; 121 if it ran longer than --max-time; 124 if the wait limit passed; 125 if bellwether
/// failed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  bellwether elect services/scheduler --value 10.0.0.7:8080 -- ./scheduler")]
pub(crate) struct ElectArgs {
    /// The path of the election; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// A value for clients that look up the leader, such as an address; `leader --value` prints it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Start a command together with N-1 others, and wait until all of them have ended.
///
/// A double barrier: commands start when N callers have arrived at the same path, and each call returns when the commands of all N
/// have ended. Then the next round can begin. BELLWETHER_ROUND has the number of the round.
///
/// Exit code: that of the command; 128+n if signal n ended it, or a wait; 121 if it ran longer than --max-time; 123 if the membership
/// was lost; 124 if fewer than N arrived in time; 125 if bellwether failed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  bellwether rendezvous load-test --size 3 --wait 5m -- ./send-requests.sh")]
pub(crate) struct RendezvousArgs {
    /// The path of the barrier; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The number of callers in a round.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) size: u32,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Run a command until it succeeds once, across all callers and hosts.
///
/// One caller runs the command, the others wait. When it exits with 0, the success is recorded for good in the node PATH/done, and
/// all present and later callers exit with 0 without running it. If it fails or its host dies, the next caller in line runs it
/// again. Delete PATH/done to run it anew.
///
/// Exit code: 0 if it succeeded, now or before; that of the command if it fails; 128+n if signal n ended it, or the wait; 121 if it
/// ran longer than --max-time; 123 if the hold was lost; 124 if the wait limit passed; 125 if bellwether failed; 126 if the command
/// cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether once migrations/2024-06 -- ./migrate.sh
  bellwether rm migrations/2024-06/done")]
pub(crate) struct OnceArgs {
    /// The path that stands for the work; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}
