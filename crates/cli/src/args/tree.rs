//! Arguments of the commands on nodes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::{ConnectArgs, LAST};
use crate::value::acl_list::{self, AclList};
use crate::value::duration;
use crate::value::node_path;

/// The connection, and the output format.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    /// Print JSON.
    #[arg(long, display_order = LAST)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// List the children of nodes.
///
/// One name per line, sorted, for several paths each below a line with the path. With --long: the kind of the child (e for ephemeral), its version, number of children, size of its
/// data, and when its data was last set.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether ls -l /jobs")]
pub(crate) struct LsArgs {
    /// The paths of the nodes; the leading slash is optional.
    #[arg(id = "path", default_value = "/", value_name = "PATH", value_parser = node_path::parse)]
    pub(crate) paths: Vec<String>,
    /// Also show the stat of each child.
    #[arg(short, long, visible_alias = "stat")]
    pub(crate) long: bool,
    /// List the paths of all nodes below; `tree` draws them.
    #[arg(short = 'R', long, conflicts_with = "long")]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show a node and all nodes below it as a tree.
///
/// With --json, one object per line, parents before their children.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether tree --depth 2 /jobs")]
pub(crate) struct TreeShowArgs {
    /// The path of the top node; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Show at most N levels below the top.
    #[arg(short, long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Print the data of nodes.
///
/// Prints the bytes unchanged, of several nodes one after the other. On a terminal, a newline is added, and data that is not text is refused. With --json, prints the stat
/// too, and data as {"text": …} if it is UTF-8 and {"base64": …} if not.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether get /config/limits | jq .")]
pub(crate) struct GetArgs {
    /// The paths of the nodes; the leading slash is optional.
    #[arg(id = "path", required = true, value_name = "PATH", value_parser = node_path::parse)]
    pub(crate) paths: Vec<String>,
    /// Write the data to a file; `-` means stdout, even if it is a terminal.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Data for a node: from the command line, a file or stdin.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct DataArgs {
    /// The data. `-` reads it from stdin; so does leaving it out, unless stdin is a terminal.
    pub(crate) data: Option<String>,
    /// Read the data from a file; `-` means stdin.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Replace the data of a node.
///
/// Without DATA and --file, reads the data from stdin; this is refused on a terminal, where '' means empty data. With --expect it is a
/// compare and set: it fails if the data has changed since that version.
///
/// Exit code: 0; 1 if there is no such node or the version differs; 2 if the data is missing; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether set /config/limits --file limits.json
  bellwether set --create /config/limits '{\"jobs\": 2}'
  bellwether set /config/limits '{\"jobs\": 4}' --expect 7")]
pub(crate) struct SetArgs {
    /// The path of the node; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Only if the present version of the data is VERSION.
    #[arg(long, alias = "version", value_name = "VERSION", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) expect: Option<i32>,
    /// If there is no such node, create it and its missing parents.
    #[arg(long, conflicts_with = "expect")]
    pub(crate) create: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl SetArgs {
    /// For `put`, which also creates the node.
    pub(crate) fn or_create(self) -> Self {
        let create = self.expect.is_none();
        Self { create, ..self }
    }
}

/// Create a node, and print its path.
///
/// Without DATA and --file, reads the data from stdin; this is refused on a terminal, where '' means empty data.
///
/// An ephemeral node lives as long as the session that created it: the command prints the path and runs until stdin ends or a signal
/// arrives, and then the node is deleted. Its data is read from stdin only with `-`.
///
/// Exit code: 0; 1 if the node exists already or its parent does not; 2 if the data is missing; 123 if an ephemeral node was lost; 125
/// if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether create -p /config/limits '{\"jobs\": 2}'
  bellwether create /config/empty ''
  bellwether create --sequential /queue/item- - < item.json")]
pub(crate) struct CreateArgs {
    /// The path of the node; the leading slash is optional. With --sequential, the server appends ten digits.
    #[arg(value_parser = node_path::parse_prefix)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Also create missing parents, and succeed if the node exists already.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Let the server append a sequence number.
    #[arg(short, long)]
    pub(crate) sequential: bool,
    /// Create an ephemeral node, and keep running.
    #[arg(short, long, conflicts_with_all = ["container", "ttl"])]
    pub(crate) ephemeral: bool,
    /// Create a container: the server deletes it some time after its last child was deleted.
    #[arg(long, conflicts_with_all = ["sequential", "ttl"])]
    pub(crate) container: bool,
    /// Let the server delete the node when it had no children and no change for this time (TTL). Needs servers with extended types.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Delete nodes; with -r also all nodes below them.
///
/// On a terminal, -r asks for confirmation, unless -y or -f is given. The deepest nodes are deleted first, many at a time, also nodes that are created meanwhile.
/// The root and /zookeeper cannot be deleted.
///
/// Exit code: 0; 1 if there is no such node, it has children, its version differs, or the answer was no; 2 if the path cannot be deleted;
/// 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether rm -r --yes /jobs/old
  bellwether rm -f /locks/a /locks/b")]
pub(crate) struct RmArgs {
    /// The paths of the nodes; the leading slash is optional.
    #[arg(id = "path", required = true, value_name = "PATH", value_parser = node_path::parse)]
    pub(crate) paths: Vec<String>,
    /// Also delete all nodes below it.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Do not ask for confirmation.
    #[arg(short, long, requires = "recursive")]
    pub(crate) yes: bool,
    /// Ignore nodes that do not exist, and do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Only if the present version of the data is VERSION.
    #[arg(long, alias = "version", value_name = "VERSION", value_parser = clap::value_parser!(i32).range(0..), conflicts_with = "recursive")]
    pub(crate) expect: Option<i32>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show the stat of nodes: versions, times, sizes.
///
/// Exit code: 0; 1 if there is no such node; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether stat --json /jobs | jq .version")]
pub(crate) struct StatArgs {
    /// The paths of the nodes; the leading slash is optional.
    #[arg(id = "path", default_value = "/", value_name = "PATH", value_parser = node_path::parse)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Print changes of a node as they happen.
///
/// One line per event: `created`, `changed`, `deleted` or `children`, and the path. The node need not exist yet. With --recursive, prints
/// events of all nodes below it too, and no `children` events, because the creations and deletions are printed themselves.
///
/// It continues over lost connections and sessions, with a notice. Changes in the meantime are found by comparison and printed as events
/// marked `missed`; of several changes to one node, only the last is seen.
///
/// Ends on a signal, after --count events, or when the output is closed.
///
/// Exit code: 0 with --count; 128+n if signal n ended it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether watch --recursive --json /config | jq -r .path")]
pub(crate) struct WatchArgs {
    /// The path of the node; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Also watch all nodes below it.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Exit after N events.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Show or change the access list (ACL) of a node.
///
/// An access list is SCHEME:ID:RIGHTS, separated by commas. Rights are letters: c(reate children), d(elete children), r(ead), w(rite),
/// a(dministrate).
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
    /// The path of the node; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Replace the access list of a node.
///
/// The scheme `auth` means the identities of this session, such as that of --auth: the server stores them in the list.
///
/// Exit code: 0; 1 if there is no such node, the version differs, or access is denied; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether acl set /config world:anyone:r,auth::cdrwa --auth digest:me:secret"
)]
pub(crate) struct AclSetArgs {
    /// The path of the node; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The new list, such as world:anyone:r,auth::cdrwa.
    #[arg(value_name = "ACL", value_parser = acl_list::parse)]
    pub(crate) list: AclList,
    /// Also for all nodes below it, the deepest first.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Only if the present version of the list (aversion) is VERSION.
    #[arg(long, alias = "version", value_name = "VERSION", value_parser = clap::value_parser!(i32).range(0..), conflicts_with = "recursive")]
    pub(crate) expect: Option<i32>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Write a node and all nodes below it as JSON.
///
/// One node per line, parents first, with data, access list and kind; `import` reads this format. Ephemeral nodes are left out, because
/// they belong to sessions, and so is /zookeeper, which belongs to the server. Nodes are read one by one, so the export is not a
/// snapshot of one moment.
///
/// Exit code: 0; 1 if there is no such node, or a node may not be read; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bellwether export /config -o config.json")]
pub(crate) struct ExportArgs {
    /// The path of the top node; the leading slash is optional.
    #[arg(default_value = "/", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Write to a file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

/// Create the nodes of an `export`.
///
/// By default, nothing is changed if one of the nodes exists already. Missing parents of the top are created. The changes are sent in
/// transactions of up to 500 nodes, each atomic. If a node was changed meanwhile, its transaction fails, and the import ends there.
///
/// Exit code: 0; 1 if nodes exist, or were changed meanwhile; 2 if the file is not an export; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether import /config config.json --merge --dry-run
  bellwether export /config -c zk1 | bellwether import /config -c zk2")]
pub(crate) struct ImportArgs {
    /// The path for the top of the export; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The file; stdin by default, or with `-`.
    pub(crate) file: Option<PathBuf>,
    /// Overwrite nodes that exist, and keep nodes that are not in the file.
    #[arg(long, conflicts_with = "replace")]
    pub(crate) merge: bool,
    /// Overwrite nodes that exist, and delete nodes below the top that are not in the file.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Only show what would be done: + for a node to create, ~ to change, - to delete.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}
