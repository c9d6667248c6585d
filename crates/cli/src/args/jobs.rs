//! The commands that run another command.

use std::convert::Infallible;
use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;

use super::ConnectArgs;
use crate::{duration, node_path};

/// What every job can be told.
// Flattened behind all else, or its heading would go on over what follows.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// A word for people who look at the line.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// How long the command has to end after SIGTERM before the hold is lost, at most a third of the session timeout;
    /// 3s, or less if the session timeout is short.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
    #[command(flatten, next_help_heading = "Connection")]
    pub(crate) connect: ConnectArgs,
}

/// How long to wait for a turn.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Give up after so long, such as 30s, 1h30m or 0.5; seconds without a unit.
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// The exit code when the turn did not come.
    #[arg(short = 'E', long, value_name = "N", default_value_t = 124)]
    pub(crate) conflict_exit_code: u8,
}

/// Run a command while holding a lock, or hold it for a script.
///
/// One runs at a time, in order of arrival. The command finds its fencing token in BELLWETHER_TOKEN, the lock in
/// BELLWETHER_PATH, and in BELLWETHER_PREVIOUS whether the holder before it finished (clean) or died (crashed). It has the
/// terminal, and signals are passed on to it. If the lock is about to be lost, it gets SIGTERM, and when it is lost,
/// SIGKILL, with all that it has started. The same happens if bellwether itself is killed.
///
/// Exit code: that of the command; 128+n if signal n ended it; 122 if it was not run because the one before crashed; 123 if the
/// lock was lost; 124 if it was not had in time; 125 if bellwether failed; 126 if the command cannot be run; 127 if it is not
/// found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether lock jobs/nightly -- ./backup.sh --full
  bellwether lock jobs/nightly --wait 10m -- ./backup.sh
  bellwether lock jobs/nightly --try -E 0 -- ./backup.sh
  bellwether lock jobs/nightly --on-crash ./repair.sh -- ./backup.sh
  bellwether lock config --read -- ./check.sh
  bellwether lock downloads --of 5 -- ./fetch.sh
  bellwether lock deploy --session-timeout 30s --grace 10s -- ./deploy.sh
  coproc bellwether lock jobs/nightly --hold; read -r token <&\"${COPROC[0]}\"")]
pub(crate) struct LockArgs {
    /// The lock; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Give up at once if somebody holds it or waits for it.
    #[arg(short = 'n', long = "try", alias = "nonblock", conflicts_with = "wait")]
    pub(crate) at_once: bool,
    /// Share the lock with other readers; it is a read/write lock then.
    #[arg(short = 's', long, alias = "shared", group = "kind")]
    pub(crate) read: bool,
    /// Hold a read/write lock alone.
    #[arg(short = 'x', long, alias = "exclusive", group = "kind")]
    pub(crate) write: bool,
    /// Let so many in at a time. Who comes first sets the number, which stays on the servers.
    #[arg(long, value_name = "M", group = "kind", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) of: Option<u32>,
    /// With --of: take so many of the M.
    #[arg(long, value_name = "N", requires = "of", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: u32,
    /// Stand in one line with users of another library. There is no crash to be told of then.
    #[arg(long, value_enum, value_name = "LIBRARY")]
    pub(crate) layout: Option<LayoutName>,
    /// What to do if the holder before died holding: `run` all the same, `fail` with 122, or a shell command that repairs
    /// what it left behind, before the command is run.
    #[arg(
        long,
        value_name = "run|fail|COMMAND",
        default_value = "run",
        value_parser = on_crash,
        conflicts_with_all = ["layout", "of"]
    )]
    pub(crate) on_crash: OnCrash,
    /// After such a death, wait so long before anything is run.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = duration::parse,
        default_value = "0s",
        hide_default_value = true,
        conflicts_with_all = ["layout", "of"]
    )]
    pub(crate) lock_delay: Duration,
    /// Run nothing: forget that a holder died, once all is repaired.
    #[arg(long, conflicts_with_all = ["hold", "wait", "at_once", "kind", "layout", "on_crash", "lock_delay", "message", "grace"])]
    pub(crate) clear: bool,
    /// Run nothing: print the token when the lock is held, and hold it until stdin ends or SIGTERM comes.
    #[arg(long, conflicts_with = "grace")]
    pub(crate) hold: bool,
    /// With --hold or --clear: print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; `--` in front of it may be left out.
    #[arg(
        trailing_var_arg = true,
        required_unless_present_any = ["hold", "clear"],
        conflicts_with_all = ["hold", "clear", "json"],
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Whose rules the nodes of a line follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// Apache Curator: InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2.
    Curator,
    /// Python's kazoo: Lock, ReadLock, WriteLock, Semaphore.
    Kazoo,
}

/// What to do after the death of a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnCrash {
    Run,
    Fail,
    /// By this command of the shell.
    Repair(String),
}

fn on_crash(text: &str) -> Result<OnCrash, Infallible> {
    Ok(match text {
        "run" => OnCrash::Run,
        "fail" => OnCrash::Fail,
        command => OnCrash::Repair(command.to_owned()),
    })
}

/// Record how far a job is, from within the job.
///
/// The last note is kept with the lock. If the job dies, the next holder finds it in BELLWETHER_PREVIOUS_NOTE, and it is told to
/// whoever looks. Locks, write sides, leaderships and `once` keep notes; --read, --of and --layout do not.
///
/// Exit code: 0 when the note is recorded; 1 if the hold is lost or keeps no notes; 2 outside of a job; 125 if bellwether
/// failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  bellwether lock jobs/nightly -- sh -c 'bellwether note dumping; ./dump; bellwether note copying; ./copy'")]
pub(crate) struct NoteArgs {
    /// How far the job is.
    pub(crate) text: OsString,
    /// Where the keeper of the job is found; jobs have it.
    #[arg(long, hide = true, env = "BELLWETHER_KEEPER")]
    pub(crate) keeper_socket: Option<String>,
}

/// Run a command while being the leader.
///
/// Those who call it stand in line, and the command of the first one runs. If the leadership is lost, the command is stopped as
/// with `lock`, and the candidate stands again, in a new session if need be. It ends when the command ends by itself.
///
/// Exit code: that of the command; 128+n if signal n ended it, or the wait; 125 if bellwether failed; 126 if the command cannot
/// be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  bellwether elect services/scheduler --value 10.0.0.7:8080 -- ./scheduler")]
pub(crate) struct ElectArgs {
    /// The election; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// What this candidate stands for, such as an address, for those who look for the leader.
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
    /// The command and its arguments; `--` in front of it may be left out.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Run a command together with others: all begin when so many are there, and all end together.
///
/// The command begins when N have called this with the same path, and the call returns when the commands of all have ended. Then
/// the next N can meet. The command finds the number of the round in BELLWETHER_ROUND.
///
/// Exit code: that of the command; 128+n if signal n ended it, or a wait; 123 if the membership was lost; 124 if not all came in
/// time; 125 if bellwether failed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  bellwether rendezvous load-test --size 3 --wait 5m -- ./send-requests.sh")]
pub(crate) struct RendezvousArgs {
    /// The place; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// How many make a round.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) size: u32,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The command and its arguments; `--` in front of it may be left out.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// Run a command to success once, whoever calls it on whichever host.
///
/// One runs it, the others wait. When it ends with 0, that is remembered for good, and everybody who waits or comes later ends
/// with 0 at once. If it fails or its host dies, the next in line runs it again. What is remembered is the node PATH/done;
/// deleting it forgets.
///
/// Exit code: 0 if it is done, now or before; that of the command if it fails; 128+n if signal n ended it, or the wait; 123 if
/// the hold was lost; 124 if the turn did not come in time; 125 if bellwether failed; 126 if the command cannot be run; 127 if
/// it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether once migrations/2024-06 -- ./migrate.sh
  bellwether rm migrations/2024-06/done")]
pub(crate) struct OnceArgs {
    /// What is to be done, by name; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The command and its arguments; `--` in front of it may be left out.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}
