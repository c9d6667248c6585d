//! The recipes that hand out work: queues and tasks.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{DataArgs, JobArgs, PlaceArgs, WaitArgs};
use crate::{duration, node_path};

/// Items that stay until they are acknowledged.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether queue put /hosts/to-drain db7
  bellwether queue take /hosts/to-drain -- ./drain.sh")]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Put an item, exactly once, and print its id.
    ///
    /// Exit code: 0; 1 if the queue is full or the item too large; 125 if bellwether failed. If it cannot be known whether the
    /// item was put, stderr says so.
    #[command(after_help = "Examples:
  bellwether queue put /hosts/to-drain db7
  bellwether queue put /jobs --priority 3 - < job.json
  bellwether queue put /reminders --delay 2h 'look at the backup'")]
    Put(QueuePutArgs),
    Take(QueueTakeArgs),
    /// Acknowledge an item that `queue take --hold` has: it is removed for good, and that command ends with 0.
    ///
    /// Exit code: 0; 1 if nobody has it, or somebody else by now; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether queue ack /hosts/to-drain \"$id\" --token \"$token\""
    )]
    Ack(QueueAckArgs),
    /// Print what would be taken next.
    ///
    /// Exit code: 0; 1 if there is nothing to take; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether queue peek /hosts/to-drain")]
    Peek(QueueLookArgs),
    /// List all items: id, rank, bytes, attempts, age, and who has it.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether queue ls /hosts/to-drain")]
    Ls(QueueLookArgs),
    /// List the items that were given up, with the reasons; put them back, or forget them.
    ///
    /// Exit code: 0; 1 if there is none of that id; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether queue dead /hosts/to-drain
  bellwether queue dead /hosts/to-drain --revive all")]
    Dead(QueueDeadArgs),
}

/// In which order items are taken. Everybody who uses a queue has to say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueOrder {
    /// As they were put.
    Arrival,
    /// The lowest number first; put with --priority.
    Priority,
    /// When they are due; put with --delay.
    Due,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueLookArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// In which order items are taken.
    #[arg(long, value_enum, default_value = "arrival")]
    pub(crate) order: QueueOrder,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueuePutArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// The lowest number is taken first; for a queue that is taken from with --order priority.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u32>,
    /// Not to be taken before; for a queue that is taken from with --order due.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "priority")]
    pub(crate) delay: Option<Duration>,
}

/// Take an item: for a command, for a script, or to print it.
///
/// With a command, the item is on its stdin, and it is acknowledged if the command succeeds and given back if not, up to
/// --attempts times; then it becomes a dead letter. The command finds its token in BELLWETHER_TOKEN, the id in
/// BELLWETHER_ITEM and in BELLWETHER_ATTEMPTS how often the item was taken. If the claim is lost, the command is stopped.
///
/// With --hold, prints one JSON object with id, token and data, and holds the item until `queue ack` says that it is done.
/// When stdin ends before, the item is given back.
///
/// With neither, prints the item and acknowledges it; if nobody reads it, it is given back.
///
/// Exit code: that of the command; without one 0, 1 if the item was given back; 123 if the claim was lost; 124 if there was
/// nothing to take in time; 125 if bellwether failed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether queue take /hosts/to-drain -- ./drain.sh
  bellwether queue take --wait 5m /hosts/to-drain -- ./drain.sh
  coproc bellwether queue take --hold /hosts/to-drain; read -r item <&\"${COPROC[0]}\"")]
pub(crate) struct QueueTakeArgs {
    /// The queue; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Give up at once if there is nothing to take.
    #[arg(short = 'n', long = "try", conflicts_with = "wait")]
    pub(crate) at_once: bool,
    /// In which order items are taken.
    #[arg(long, value_enum, default_value = "arrival")]
    pub(crate) order: QueueOrder,
    /// How often an item is taken in vain before it becomes a dead letter.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
    /// Print it as JSON, and hold it until it is acknowledged.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; `--` in front of it may be left out.
    #[arg(trailing_var_arg = true, conflicts_with_all = ["hold", "json"], value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueAckArgs {
    #[command(flatten)]
    pub(crate) look: QueueLookArgs,
    /// The id of the item.
    pub(crate) id: String,
    /// Only if it is still this claim.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<i64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueDeadArgs {
    #[command(flatten)]
    pub(crate) look: QueueLookArgs,
    /// Put this one back for new attempts, or all.
    #[arg(long, value_name = "ID|all")]
    pub(crate) revive: Option<String>,
    /// Delete this one for good, or all.
    #[arg(long, value_name = "ID|all", conflicts_with = "revive")]
    pub(crate) forget: Option<String>,
}

/// Things to do once each, by name, by whoever is there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether tasks add /migrations users orders
  bellwether tasks run /migrations -- ./migrate.sh")]
pub(crate) struct TasksArgs {
    #[command(subcommand)]
    pub(crate) command: TasksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// Add tasks, unless there are some of these names already, done ones among them.
    ///
    /// Exit code: 0, also if none is new; 1 if there are too many, or the data is too large; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tasks add /migrations users orders
  bellwether tasks add /migrations users --data users.sql")]
    Add(TasksAddArgs),
    Run(TasksRunArgs),
    /// Show how many tasks are in which state, and those that have failed with the reasons.
    ///
    /// Exit code: 0 if all are done; 1 if some are not; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tasks status /migrations
  bellwether tasks status /migrations --retry all")]
    Status(TasksStatusArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TasksAddArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The names.
    #[arg(required = true, value_parser = node_path::parse_name)]
    pub(crate) names: Vec<String>,
    /// What the command that does them finds on its stdin.
    #[arg(long, default_value = "")]
    pub(crate) data: String,
}

/// Do the tasks that nobody does, one after the other, until nothing is left to do.
///
/// The command finds the name in BELLWETHER_TASK, its token in BELLWETHER_TOKEN, and what was added with the name on its stdin. A
/// task is done if the command succeeds, and done again later if not, up to --attempts times; then it is set aside. When
/// others are at all that is left, this waits: a worker may die, or fail.
///
/// Exit code: 0 when nothing is left to do and no command has failed here; 1 if one has; 123 if a claim was lost; 128+n for a
/// signal; 125 if bellwether failed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether tasks run /migrations -- sh -c './migrate.sh \"$BELLWETHER_TASK\"'"
)]
pub(crate) struct TasksRunArgs {
    /// The tasks; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// How often a task is begun before it is set aside.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
    /// The command and its arguments; `--` in front of it may be left out.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TasksStatusArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Give a task that was set aside new attempts, or all.
    #[arg(long, value_name = "NAME|all")]
    pub(crate) retry: Option<String>,
}
