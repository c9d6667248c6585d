//! Arguments of `queue` and `tasks`.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{JobArgs, PlaceArgs, WaitArgs};
use crate::value::duration;
use crate::value::node_path;

/// Put items into a queue, and take them with acknowledgement.
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
    /// Put items, each exactly once, and print their ids.
    ///
    /// Items are taken in order of arrival, unless they are put with --priority or --delay. The first item decides for the queue, and an
    /// item of another order is refused. A consumer gets the first item that is not claimed; only consumers that take at the same moment
    /// share the first items without order.
    ///
    /// Exit code: 0; 1 if the queue is full or the item is too large; 2 if the queue has another order; 125 if bellwether failed. If the outcome is unknown, stderr says so.
    #[command(after_help = "Examples:
  bellwether queue put /hosts/to-drain db7 db8 db9
  find . -name '*.log' -print0 | bellwether queue put /logs -0
  bellwether queue put /jobs --priority 3 - < job.json
  bellwether queue put /reminders --delay 2h 'look at the backup'")]
    Put(QueuePutArgs),
    Take(QueueTakeArgs),
    Work(QueueWorkArgs),
    /// Acknowledge an item that `queue take --hold` holds: it is deleted, and that command exits with 0.
    ///
    /// Exit code: 0; 1 if the item is not claimed, or by another claim than --token; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether queue ack /hosts/to-drain \"$id\" --token \"$token\""
    )]
    Ack(QueueAckArgs),
    /// Print the next item without taking it.
    ///
    /// Exit code: 0; 1 if there is no item to take; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether queue peek /hosts/to-drain")]
    Peek(QueueLookArgs),
    /// List all items: id, rank, size, attempts, age and consumer.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether queue ls /hosts/to-drain")]
    Ls(QueueLookArgs),
    /// List dead letters, the items that failed too often; put them back, or delete them.
    ///
    /// Exit code: 0; 1 if there is no dead letter with that id; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether queue dead /hosts/to-drain
  bellwether queue dead /hosts/to-drain --retry all")]
    Dead(QueueDeadArgs),
}

/// The order in which items are taken. The first item that is put decides it for the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueOrder {
    /// First in, first out.
    #[default]
    Arrival,
    /// The lowest number first, of items put with --priority.
    Priority,
    /// The earliest due time first, of items put with --delay.
    Due,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueLookArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Refuse a queue of another order. By default, the order of the queue is followed.
    #[arg(long, value_enum)]
    pub(crate) order: Option<QueueOrder>,
}

/// Items from the command line, a file or stdin.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct ItemArgs {
    /// The items. A single `-` reads one from stdin; so does leaving them out, unless stdin is a terminal.
    pub(crate) data: Vec<String>,
    /// Read one item from a file; `-` means stdin.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Put each line of stdin that is not empty as an item.
    #[arg(long)]
    pub(crate) lines: bool,
    /// As --lines, for items that end in a zero byte, as from `find -print0`.
    #[arg(short = '0', long)]
    pub(crate) null: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueuePutArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// The priority of the items, lowest first; it may be negative. All items of a queue have a priority, or none has.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// Deliver the item only after this time. All items of a queue have a due time, or none has; without this option, an item in such a
    /// queue is due at once.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "priority")]
    pub(crate) delay: Option<Duration>,
}

/// Take an item from a queue: for a command, for a script, or to print it.
///
/// With a command, its stdin is the item. The item is acknowledged if the command succeeds, and otherwise returned to the queue; after
/// --attempts failures it becomes a dead letter. The environment has the fencing token (BELLWETHER_TOKEN), the id of the item
/// (BELLWETHER_ITEM) and how often it was taken (BELLWETHER_ATTEMPTS). If the claim is lost, the command is stopped.
///
/// With --hold, prints one JSON object with id, token and data, and holds the item until `queue ack` acknowledges it. If stdin ends
/// first, the item is returned to the queue.
///
/// With neither, prints the item and acknowledges it. If it cannot be printed, it is returned to the queue.
///
/// An attempt does not count if the command cannot be run, if a signal to bellwether ends it, or if the item cannot be printed.
///
/// Exit code: that of the command; without a command 0, or 1 if --hold returned the item; 128+n if signal n ended the command, or the
/// wait; 121 if the command ran longer than --max-time; 123 if the claim was lost; 124 if there was no item in time; 125 if bellwether
/// failed, or the item cannot be printed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether queue take /hosts/to-drain -- ./drain.sh
  bellwether queue take --wait 5m /hosts/to-drain -- ./drain.sh
  coproc bellwether queue take --hold /hosts/to-drain; read -r item <&\"${COPROC[0]}\"")]
pub(crate) struct QueueTakeArgs {
    /// The path of the queue; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Refuse a queue of another order. By default, the order of the queue is followed.
    #[arg(long, value_enum)]
    pub(crate) order: Option<QueueOrder>,
    /// Make an item a dead letter after N failed attempts.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) attempts: NonZeroU32,
    /// Print the item as JSON, and hold it until it is acknowledged.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(trailing_var_arg = true, conflicts_with_all = ["hold", "json"], value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// How many workers, and their pauses.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// Run this many commands at a time, each with a session of its own.
    #[arg(short = 'j', long, value_name = "N", default_value = "1")]
    pub(crate) jobs: NonZeroU32,
    /// How long a worker pauses after a failed command. The pause doubles with each further failure, up to a minute.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    pub(crate) pause: Duration,
}

/// Take items one after the other, and run a command for each.
///
/// A loop of `queue take` with a command: an item is acknowledged if the command succeeds, and otherwise returned to the queue; after
/// --attempts failures it becomes a dead letter. A worker pauses after a failure, and opens a new session if its session expires. It
/// ends after --idle without items, or on a signal or Ctrl-C, when its present command has ended.
///
/// On SIGTERM, the present command may finish within --grace; then it gets SIGTERM, and after another grace SIGKILL. Other signals, and
/// a second SIGTERM, are passed on at once. If the command fails then, or cannot be run at all, the attempt does not count.
///
/// Exit code: 0 after --idle without items; 128+n if signal n ended it; 125 if bellwether failed; 126 if the command cannot be run; 127
/// if it is not found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether queue work -j 4 /hosts/to-drain -- ./drain.sh
  bellwether queue work --idle 5m --max-time 1h /reports -- ./report.sh")]
pub(crate) struct QueueWorkArgs {
    /// The path of the queue; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    /// Exit after this time without an item.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) idle: Option<Duration>,
    /// Refuse a queue of another order. By default, the order of the queue is followed.
    #[arg(long, value_enum)]
    pub(crate) order: Option<QueueOrder>,
    /// Make an item a dead letter after N failed attempts.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) attempts: NonZeroU32,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
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
    /// Only if the item is still claimed with this token.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<bellwether::FencingToken>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueDeadArgs {
    #[command(flatten)]
    pub(crate) look: QueueLookArgs,
    /// Put the dead letter with this id, or all, back into the queue for new attempts.
    #[arg(long, alias = "revive", value_name = "ID|all")]
    pub(crate) retry: Option<String>,
    /// Delete the dead letter with this id, or all.
    #[arg(long, value_name = "ID|all", conflicts_with = "retry")]
    pub(crate) forget: Option<String>,
}

/// Add named tasks, and do each of them once, with any number of workers.
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
    /// Add tasks. Names that were added before, even if their tasks are done, are ignored.
    ///
    /// Exit code: 0, also if no task is new; 1 if there are too many tasks, or the data is too large; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tasks add /migrations users orders
  bellwether tasks add /migrations users --data users.sql")]
    Add(TasksAddArgs),
    Run(TasksRunArgs),
    /// Count tasks by state, and list failed tasks with their reasons; open them again, or delete them.
    ///
    /// Exit code: 0 if all tasks are done; 1 if not, or if there is no failed task of that name; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tasks ls /migrations
  bellwether tasks ls /migrations --retry all
  bellwether tasks ls /migrations --forget users")]
    #[command(alias = "status")]
    Ls(TasksLsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TasksAddArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The names of the tasks.
    #[arg(required = true, value_parser = node_path::parse_name)]
    pub(crate) names: Vec<String>,
    /// Data for the commands of these tasks, on their stdin.
    #[arg(long, default_value = "")]
    pub(crate) data: String,
}

/// Run a command for each open task, until no task is left.
///
/// The environment of the command has the name of the task (BELLWETHER_TASK) and the fencing token (BELLWETHER_TOKEN); its stdin has
/// the data of the task. A task is done if the command succeeds, and is tried again later if not; after --attempts failures it counts as
/// failed. A worker pauses after a failure, and opens a new session if its session expires. While other workers run the last tasks, this
/// worker waits, because they may fail.
///
/// On SIGTERM, the present command may finish within --grace; then it gets SIGTERM, and after another grace SIGKILL. Other signals, and
/// a second SIGTERM, are passed on at once. If the command fails then, or cannot be run at all, the attempt does not count.
///
/// Exit code: 0 when no task is left and no command failed here; 1 if a command failed; 128+n if signal n ended it; 125 if bellwether
/// failed; 126 if the command cannot be run; 127 if it is not found.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether tasks run -j 2 /migrations -- sh -c './migrate.sh \"$BELLWETHER_TASK\"'"
)]
pub(crate) struct TasksRunArgs {
    /// The path of the tasks; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    /// Give a task up as failed after N attempts.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) attempts: NonZeroU32,
    /// The command and its arguments; the `--` before it is optional.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TasksLsArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Open the failed task of this name, or all failed tasks, for new attempts.
    #[arg(long, value_name = "NAME|all")]
    pub(crate) retry: Option<String>,
    /// Delete the failed task of this name, or all failed tasks. A task of that name may then be added again.
    #[arg(long, value_name = "NAME|all", conflicts_with = "retry")]
    pub(crate) forget: Option<String>,
}
