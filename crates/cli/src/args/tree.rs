//! The commands on the tree.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::ConnectArgs;
use crate::acl_list::{self, AclList};
use crate::{duration, node_path};

/// How the tree is reached, and how it is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "Connection")]
    pub(crate) connect: ConnectArgs,
}

/// List the children of a node.
///
/// One name a line, in order. With --long: what kind it is (e for ephemeral), its version, how many children it has,
/// how many bytes, and when its data was last set.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether ls -l /jobs")]
pub(crate) struct LsArgs {
    /// The node; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Show the numbers of each child too.
    #[arg(short, long, visible_alias = "stat")]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show a node and all below it as a tree.
///
/// With --json, one object a line, each node followed by those below it.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether tree --depth 2 /jobs")]
pub(crate) struct TreeShowArgs {
    /// The node at the top; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// How many levels below the top are shown.
    #[arg(short, long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Print the data of a node.
///
/// The bytes come unchanged. Only on a terminal a line end is added, and what is no text is not printed. With --json,
/// data is {"text": …} if it is UTF-8 and {"base64": …} if not, and the numbers of the node come with it.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether get /config/limits | jq .")]
pub(crate) struct GetArgs {
    /// The node; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Write the data to a file; `-` for stdout, even if it is a terminal.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Data for a node: typed, from a file or from stdin.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct DataArgs {
    /// The data; `-` to read it from stdin, as happens without it if stdin is no terminal.
    pub(crate) data: Option<String>,
    /// Read the data from a file; `-` for stdin.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Replace the data of a node.
///
/// Without DATA and --file, the data is read from stdin; on a terminal that is refused, and '' stands for empty data. With
/// --version it is a compare and set: refused if somebody has set the data since that version.
///
/// Exit code: 0; 1 if there is no such node or it has another version; 2 if the data is missing; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether set /config/limits --file limits.json
  bellwether set /config/limits '{\"jobs\": 4}' --version 7")]
pub(crate) struct SetArgs {
    /// The node; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Only if this is still the version of the data.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) version: Option<i32>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Create a node, and print its path.
///
/// Without DATA and --file, the data is read from stdin, and is empty on a terminal.
///
/// An ephemeral node lives as long as the session that made it: the command prints the path and stays until its input
/// ends or a signal comes, and then the node is gone. Its data is read from stdin for `-` only.
///
/// Exit code: 0; 1 if the node exists already or its parent does not; 123 if an ephemeral node was lost before the end;
/// 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether create -p /config/limits '{\"jobs\": 2}'
  bellwether create --sequential /queue/item- - < item.json")]
pub(crate) struct CreateArgs {
    /// The node; a leading slash may be left out. With --sequential the server adds ten digits to it.
    #[arg(value_parser = node_path::parse_prefix)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Make what is missing above it too, and do not mind if it exists already.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Let the server add a number that rises.
    #[arg(short, long)]
    pub(crate) sequential: bool,
    /// Make it ephemeral, and stay.
    #[arg(short, long, conflicts_with_all = ["container", "ttl"])]
    pub(crate) ephemeral: bool,
    /// Make it a container: the server removes it when its last child has gone.
    #[arg(long, conflicts_with_all = ["sequential", "ttl"])]
    pub(crate) container: bool,
    /// Let the server remove it when it has had no children and no change for so long; for servers with extended
    /// types.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Who may do what, such as world:anyone:r,auth::cdrwa. Everybody everything unless given.
    #[arg(long, value_name = "ACL", value_parser = acl_list::parse)]
    pub(crate) acl: Option<AclList>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Delete a node, with -r all below it too.
///
/// On a terminal -r asks first. Nodes go deepest first, many at a time; what others create below meanwhile goes too.
/// The root and what is below /zookeeper are refused.
///
/// Exit code: 0; 1 if there is no such node, it has children or another version, or the answer was no; 2 if the path is
/// refused; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether rm -r --yes /jobs/old")]
pub(crate) struct RmArgs {
    /// The node; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Delete what is below it too.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Do not ask.
    #[arg(short, long, requires = "recursive")]
    pub(crate) yes: bool,
    /// Only if this is still the version of the data.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), conflicts_with = "recursive")]
    pub(crate) version: Option<i32>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show the numbers of a node.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether stat --json /jobs | jq .version")]
pub(crate) struct StatArgs {
    /// The node; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Print what happens to a node, as it happens.
///
/// One line an event: `created`, `changed`, `deleted` or `children`, and the path. The node need not exist yet. With
/// --recursive, events of all nodes below it come too, and none of children, as their creation and deletion are told
/// themselves.
///
/// A lost connection or session is told and survived. What has changed meanwhile is found by comparing, and told as
/// events marked `missed`; of several changes to one node the last one is seen.
///
/// Ends on a signal, with --count after so many events, or when nobody reads its output any more.
///
/// Exit code: 0 with --count; 128+n for a signal; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether watch --recursive --json /config | jq -r .path")]
pub(crate) struct WatchArgs {
    /// The node; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Watch all nodes below it too.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// End after so many events.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show or change who may do what with a node.
///
/// An access list is SCHEME:ID:RIGHTS, joined by commas; rights are letters: c(reate children), d(elete children),
/// r(ead), w(rite), a(dministrate).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether acl get /config")]
pub(crate) struct AclArgs {
    #[command(subcommand)]
    pub(crate) command: AclCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    Get(AclGetArgs),
    Set(AclSetArgs),
}

/// Print the access list of a node.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether acl get /config")]
pub(crate) struct AclGetArgs {
    /// The node; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Replace the access list of a node.
///
/// The scheme auth stands for whoever --auth proves to be: the server stores that identity.
///
/// Exit code: 0; 1 if there is no such node, it has another version or you may not; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether acl set /config world:anyone:r,auth::cdrwa --auth digest:me:secret"
)]
pub(crate) struct AclSetArgs {
    /// The node; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The new list, such as world:anyone:r,auth::cdrwa.
    #[arg(value_name = "ACL", value_parser = acl_list::parse)]
    pub(crate) acl: AclList,
    /// For all nodes below it too; from the deepest up.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Only if this is still the version of the list (aversion).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), conflicts_with = "recursive")]
    pub(crate) version: Option<i32>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Write a node and all below it as JSON.
///
/// One node a line, parents first, with data, access list and kind; `import` reads it. Ephemeral nodes belong to
/// sessions and are left out, as is /zookeeper, which belongs to the server. Nodes are read one after the other: what
/// changes meanwhile is seen before or after its change.
///
/// Exit code: 0; 1 if there is no such node or one may not be read; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether export /config -o config.json")]
pub(crate) struct ExportArgs {
    /// The node at the top; a leading slash may be left out.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Write to a file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Make the nodes that `export` wrote.
///
/// Unless told otherwise, nothing is done if one of the nodes exists already. What is missing above the top is made.
/// The changes go in as few transactions as fit (up to 500 nodes each), each whole or not at all; if somebody changes
/// a node in between, that transaction is refused and the import ends there.
///
/// Exit code: 0; 1 if nodes exist, or were changed meanwhile; 2 if the file is no export; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether import /config config.json --merge --dry-run
  bellwether export /config -c zk1 | bellwether import /config -c zk2")]
pub(crate) struct ImportArgs {
    /// Where the top of the export goes; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The file; stdin unless given, or `-`.
    pub(crate) file: Option<PathBuf>,
    /// Overwrite nodes that exist, and leave others as they are.
    #[arg(long, conflicts_with = "replace")]
    pub(crate) merge: bool,
    /// Overwrite nodes that exist, and delete those below the top that the file has not.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Only show what would be done: + for a node to create, ~ to change, - to delete.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}
