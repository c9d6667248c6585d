//! Arguments of `barrier`, `counter`, `config`, `group` and `name`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{DataArgs, TreeArgs, WaitArgs};
use crate::value::node_path;

/// A path, and the options of the connection.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// The path; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Make commands wait at a barrier until it is lifted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether barrier set /deploy/migration -m 'until the tables are moved'"
)]
pub(crate) struct BarrierArgs {
    #[command(subcommand)]
    pub(crate) command: BarrierCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BarrierCommand {
    /// Set the barrier. It stays set until it is lifted.
    ///
    /// Exit code: 0, also if it was set already; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether barrier set /deploy/migration -m 'until the tables are moved'"
    )]
    Set(BarrierSetArgs),
    /// Wait until the barrier is lifted. Returns at once if it is not set.
    ///
    /// Exit code: 0; 124 if the wait limit passed; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether barrier wait --wait 10m /deploy/migration && ./start.sh"
    )]
    Wait(BarrierWaitArgs),
    /// List the barriers that are set at a path and below it, and who set them.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether barrier ls /deploy")]
    Ls(BarrierLsArgs),
    /// Lift the barrier, and so release all waiters.
    ///
    /// Exit code: 0, also if it was not set; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether barrier lift /deploy/migration")]
    Lift(PlaceArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BarrierLsArgs {
    /// The path to look at, with all below it; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BarrierSetArgs {
    /// A message for people who ask why the barrier is set.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BarrierWaitArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Read, set, and add to a shared number, exactly once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether counter add /stats/builds")]
pub(crate) struct CounterArgs {
    #[command(subcommand)]
    pub(crate) command: CounterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CounterCommand {
    /// Print the number; 0 if it was never set.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether counter get /stats/builds")]
    Get(PlaceArgs),
    /// Add to the number, and print the sum.
    ///
    /// Exit code: 0; 1 if the sum would be out of range; 125 if bellwether failed. If the outcome is unknown, stderr says so.
    #[command(after_help = "Examples:
  bellwether counter add /stats/builds
  bellwether counter add /stats/seats -2")]
    Add(CounterAddArgs),
    /// Set the number; with --expect, only if it has the expected value (compare and set).
    ///
    /// Exit code: 0; 1 if the number is not the expected one; 125 if bellwether failed. If the outcome is unknown, stderr says so.
    #[command(after_help = "Examples:
  bellwether counter set /stats/builds 0
  bellwether counter set /stats/seats 12 --expect 10")]
    Set(CounterSetArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CounterAddArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The number to add; it may be negative.
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) by: i64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CounterSetArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The new number.
    #[arg(allow_negative_numbers = true)]
    pub(crate) value: i64,
    /// Set it only if the present number is N.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) expect: Option<i64>,
}

/// Get, set, edit and watch configuration values.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether config edit /app/limits")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a value, byte for byte.
    ///
    /// Exit code: 0; 1 if there is no value; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config get /app/limits | jq .")]
    Get(PlaceArgs),
    /// Set a value exactly once; with --expect, only if it still has that version (compare and set).
    ///
    /// Missing parents are created.
    ///
    /// Exit code: 0; 1 if the version differs, or the value is too large; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config set /app/limits '{\"requests\": 100}'")]
    Set(ConfigSetArgs),
    /// Delete a value.
    ///
    /// Exit code: 0; 1 if there is no value; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config rm /app/limits")]
    Rm(PlaceArgs),
    /// Edit a value with $VISUAL or $EDITOR, and set it unless it was changed meanwhile.
    ///
    /// Nothing is set if you leave the text as it is. If the value cannot be set, your text is kept in a file. Ctrl-C goes to the editor.
    ///
    /// Exit code: 0; 1 if the value was changed meanwhile, the text is too large, or the editor failed; 2 without a terminal; 128+n if signal n ended it; 125 if
    /// bellwether failed.
    #[command(after_help = "Example:\n  EDITOR=vi bellwether config edit /app/limits")]
    Edit(PlaceArgs),
    /// Print a value, or all values of a folder, and print it again each time it changes.
    ///
    /// With --json, prints one object per line, with `data` null while there is no value. Otherwise a newline follows each value. Of a
    /// folder, a line says `set`, `changed` or `deleted`, the name, and the data. A path is a folder if there is a value below it, or with --folder.
    /// Continues over lost connections and sessions, until a signal arrives or the output is closed.
    ///
    /// Exit code: 0 with --count; 128+n if signal n ended it; 125 if bellwether failed.
    #[command(
        after_help = "Examples:\n  bellwether config watch --json /app/limits | while read -r l; do ./reload.sh; done\n  bellwether config watch /app"
    )]
    Watch(ConfigWatchArgs),
    /// Replace all values of a folder atomically with those of a file.
    ///
    /// The file has the format of `config export`: a JSON object with a value for each name.
    ///
    /// Exit code: 0; 1 if the file is too large; 2 if it has another format; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config import /app/database database.json")]
    Import(ConfigImportArgs),
    /// List all values of a folder, with their data.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config ls /app")]
    Ls(PlaceArgs),
    /// Write all values of a folder as one JSON object, in one consistent read.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config export /app/database > database.json")]
    Export(PlaceArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigSetArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Set it only if the present version is VERSION.
    #[arg(long, alias = "version", value_name = "VERSION", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) expect: Option<i32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigWatchArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Watch a folder, although there is no value below it yet.
    #[arg(short, long)]
    pub(crate) folder: bool,
    /// Exit after N values, or N lines of a folder.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigImportArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The file; stdin by default, or with `-`.
    pub(crate) file: Option<PathBuf>,
    /// Keep values that are not in the file.
    #[arg(long)]
    pub(crate) merge: bool,
}

/// Join a group as a member; list and watch members.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether group ls /workers")]
pub(crate) struct GroupArgs {
    #[command(subcommand)]
    pub(crate) command: GroupCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Join as a member, print its name, and stay a member until stdin ends or a signal arrives.
    ///
    /// After an expired session, the member joins again.
    ///
    /// Exit code: 0; 1 if the name is taken, or the data is too large; 128+n if signal n ended it; 125 if bellwether failed.
    #[command(after_help = "Example:\n  coproc bellwether group join /workers \"$HOSTNAME:8080\"")]
    Join(GroupJoinArgs),
    /// List the members with their data; without PATH, the groups.
    ///
    /// A group is a node with members: nodes that live as long as the session of a client, and belong to no lock, queue or other recipe.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(
        after_help = "Examples:\n  bellwether group ls\n  bellwether group ls --json /workers | jq -r '.members[].name'"
    )]
    Ls(GroupLsArgs),
    /// Print the members, and then each change.
    ///
    /// One line per change: `joined`, `left` or `changed`, the name, and the data. Continues over lost connections and sessions.
    ///
    /// Exit code: 128+n if signal n ended it; 0 when the output is closed; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether group watch --json /workers | jq -r '.event + \" \" + .name'"
    )]
    Watch(PlaceArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct GroupLsArgs {
    /// The path of the group; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: Option<String>,
    /// List the groups at PATH and below it, and the number of their members.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GroupJoinArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// The name of the member; by default, a unique name is made.
    #[arg(long, value_name = "NAME", value_parser = node_path::parse_name)]
    pub(crate) name: Option<String>,
}

/// Register names with data, such as addresses; resolve and list them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether name resolve /names db-primary")]
pub(crate) struct NameArgs {
    #[command(subcommand)]
    pub(crate) command: NameCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// Register a name until stdin ends or a signal arrives, or for good with --lasting.
    ///
    /// Exit code: 0; 1 if the name is taken, or the data is too large; 128+n if signal n ended it; 125 if bellwether failed.
    #[command(after_help = "Examples:
  coproc bellwether name register /names db-primary 10.0.0.7:5432
  bellwether name register --lasting /names depot 10.0.0.9")]
    Register(NameRegisterArgs),
    /// Delete a name that was registered with --lasting.
    ///
    /// A name whose owner still runs is registered again by its owner.
    ///
    /// Exit code: 0; 1 if the name is not registered; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether name unregister /names depot")]
    Unregister(NameResolveArgs),
    /// Print the data of a name.
    ///
    /// Exit code: 0; 1 if the name is not registered; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  psql \"postgresql://$(bellwether name resolve /names db-primary)/app\""
    )]
    Resolve(NameResolveArgs),
    /// List all names with their data.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether name ls /names")]
    Ls(PlaceArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NameRegisterArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The name.
    #[arg(value_parser = node_path::parse_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Register the name until it is deleted, and exit.
    #[arg(long)]
    pub(crate) lasting: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NameResolveArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The name.
    #[arg(value_parser = node_path::parse_name)]
    pub(crate) name: String,
}
