//! The recipes for scripts, but for those that hand out work.

use std::path::PathBuf;

use clap::Subcommand;

use super::{DataArgs, TreeArgs, WaitArgs};
use crate::node_path;

/// A path, and how the tree is reached.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Where; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Hold everybody up at a barrier, until it is lifted.
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
    /// Set the barrier. It stays, whatever becomes of whoever set it.
    ///
    /// Exit code: 0, also if it was set already; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether barrier set /deploy/migration -m 'until the tables are moved'"
    )]
    Set(BarrierSetArgs),
    /// Wait until the barrier is lifted; not at all if it is not set.
    ///
    /// Exit code: 0; 124 if it was not lifted in time; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether barrier wait --wait 10m /deploy/migration && ./start.sh"
    )]
    Wait(BarrierWaitArgs),
    /// Lift the barrier, and so let everybody pass.
    ///
    /// Exit code: 0, also if it was not set; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether barrier lift /deploy/migration")]
    Lift(PlaceArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BarrierSetArgs {
    /// A word for people who ask why it is set.
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

/// A number that many add to, each addition exactly once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether counter add /stats/builds")]
pub(crate) struct CounterArgs {
    #[command(subcommand)]
    pub(crate) command: CounterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CounterCommand {
    /// Print the number; 0 where there is none yet.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether counter get /stats/builds")]
    Get(PlaceArgs),
    /// Add to the number, and print the sum.
    ///
    /// Exit code: 0; 125 if bellwether failed. If it cannot be known whether the addition was made, stderr says so.
    #[command(after_help = "Examples:
  bellwether counter add /stats/builds
  bellwether counter add /stats/seats -2")]
    Add(CounterAddArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CounterAddArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// How much; it may be less than nothing.
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) by: i64,
}

/// Values that are watched, compared and set.
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
    /// Exit code: 0; 1 if there is none; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config get /app/limits | jq .")]
    Get(PlaceArgs),
    /// Set a value, exactly once, whatever it was; with --version only if that is still its version.
    ///
    /// What is missing above it is made.
    ///
    /// Exit code: 0; 1 if it has another version, or is too large; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config set /app/limits '{\"requests\": 100}'")]
    Set(ConfigSetArgs),
    /// Edit a value with $VISUAL or $EDITOR, and set it if nobody else has meanwhile.
    ///
    /// Nothing is set if the text is the same at the end. If it cannot be set, it is kept in a file. Ctrl-C is for the editor.
    ///
    /// Exit code: 0; 1 if somebody else has set it meanwhile, it is too large, or the editor has failed; 128+n for a signal that ended it;
    /// 125 if bellwether failed.
    #[command(after_help = "Example:\n  EDITOR=vi bellwether config edit /app/limits")]
    Edit(PlaceArgs),
    /// Print a value each time that it changes: the present one first.
    ///
    /// With --json one object a line, `data` null where there is no value. Else each value is followed by a line end. Goes on
    /// over lost connections and sessions until a signal comes or nobody reads any more.
    ///
    /// Exit code: 0 with --count; 128+n for a signal; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether config watch --json /app/limits | while read -r l; do ./reload.sh; done"
    )]
    Watch(ConfigWatchArgs),
    /// Replace all values of a folder by those of a file, at once: nobody ever sees half of them.
    ///
    /// The file is what `config export` writes: a JSON object with a value for each name.
    ///
    /// Exit code: 0; 1 if it is too large; 2 if the file is no such object; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether config import /app/database database.json")]
    Import(ConfigImportArgs),
    /// Write all values of a folder as one JSON object, as they were at one moment.
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
    /// Only if this is still the version of the value.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) version: Option<i32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigWatchArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// End after so many values.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigImportArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The file; stdin unless given, or `-`.
    pub(crate) file: Option<PathBuf>,
    /// Keep values that the file has not.
    #[arg(long)]
    pub(crate) merge: bool,
}

/// Who is there: members that come and go.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether group ls /workers")]
pub(crate) struct GroupArgs {
    #[command(subcommand)]
    pub(crate) command: GroupCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Be a member, print the name, and stay one until stdin ends or a signal comes.
    ///
    /// A member comes back by itself after a lost session.
    ///
    /// Exit code: 0; 1 if the name is taken, or the data is too large; 128+n for a signal; 125 if bellwether failed.
    #[command(after_help = "Example:\n  coproc bellwether group join /workers \"$HOSTNAME:8080\"")]
    Join(GroupJoinArgs),
    /// List the members with their data.
    ///
    /// Exit code: 0; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether group ls --json /workers | jq -r '.members[].name'"
    )]
    Ls(PlaceArgs),
    /// Print who comes, goes, and changes its data: those who are there first.
    ///
    /// One line a change: `joined`, `left` or `changed`, the name, and the data. Goes on over lost connections and sessions.
    ///
    /// Exit code: 128+n for a signal; 0 when nobody reads any more; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether group watch --json /workers | jq -r '.event + \" \" + .name'"
    )]
    Watch(PlaceArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct GroupJoinArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// The name; one that nobody else has unless given.
    #[arg(long, value_name = "NAME", value_parser = node_path::parse_name)]
    pub(crate) name: Option<String>,
}

/// Names with data: some for as long as who bears them, some to stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether name resolve /names db-primary")]
pub(crate) struct NameArgs {
    #[command(subcommand)]
    pub(crate) command: NameCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// Bear a name until stdin ends or a signal comes; with --lasting make one that stays.
    ///
    /// Exit code: 0; 1 if the name is taken, or the data is too large; 128+n for a signal; 125 if bellwether failed.
    #[command(after_help = "Examples:
  coproc bellwether name register /names db-primary 10.0.0.7:5432
  bellwether name register --lasting /names depot 10.0.0.9")]
    Register(NameRegisterArgs),
    /// Print the data of a name.
    ///
    /// Exit code: 0; 1 if nobody bears it; 125 if bellwether failed.
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
    /// Make a name that stays until somebody removes it.
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
