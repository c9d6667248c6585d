//! The command line, as types.

pub(crate) mod command_line;
pub(crate) mod config_file;
pub(crate) mod habits;
pub(crate) mod help;

mod dashboard;
mod demo;
mod inspect;
mod jobs;
mod mistakes;
mod old_spellings;
mod queues;
mod recipes;
mod security;
mod serve_security;
mod torture;
mod tree;
mod tx;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bellwether_server::WordList;
use clap::{Arg, CommandFactory, Parser, Subcommand};

pub(crate) use self::dashboard::*;
pub(crate) use self::demo::*;
pub(crate) use self::inspect::*;
pub(crate) use self::jobs::*;
pub(crate) use self::queues::*;
pub(crate) use self::recipes::*;
pub(crate) use self::security::*;
pub(crate) use self::serve_security::*;
pub(crate) use self::torture::*;
pub(crate) use self::tree::*;
pub(crate) use self::tx::*;
use crate::value::{duration, listen_address, servers};

/// As in docs/commands.md.
const EXIT_CODES: &str = "\
Example:
  bellwether lock jobs/nightly -- ./backup.sh

Exit codes:
  0        done
  1        the answer is no
  2        wrong usage
  3        doctor: something does not work; tx: no such transaction
  Where a command is run:
  0-255    the exit code of the command
  128+n    signal n ended it
  121      the command ran longer than --max-time
  122      not run because the previous holder crashed
  123      the hold was lost
  124      not acquired within the wait limit; -E N sets another code
  125      bellwether failed
  126      the command cannot be run
  127      the command is not found";

/// Locks, elections, queues and more for programs on one host or on many.
#[derive(Debug, Parser)]
#[command(
    name = "bellwether",
    version,
    after_help = "Example:\n  bellwether lock jobs/nightly -- ./backup.sh",
    after_long_help = EXIT_CODES
)]
pub(crate) struct Args {
    /// Print only errors and reports of crashes, no notices.
    #[arg(short, long, global = true, display_order = LAST)]
    pub(crate) quiet: bool,
    /// Be the keeper of the job of this command line. The front starts it with this flag.
    #[arg(long, hide = true)]
    pub(crate) keeper: bool,
    /// Be one of several workers. The process that starts them sets this flag to its pid.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) worker: Option<i32>,
    /// The name of the command, for its trace.
    #[cfg(feature = "otlp")]
    #[arg(skip)]
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Lock(LockArgs),
    Barrier(BarrierArgs),
    Queue(QueueArgs),
    Tasks(TasksArgs),
    Tx(TxArgs),
    Group(GroupArgs),
    Name(NameArgs),
    Config(ConfigArgs),
    Counter(CounterArgs),
    Locks(LocksArgs),
    Top(TopArgs),
    Why(WhyArgs),
    Leader(LeaderArgs),
    Revoke(RevokeArgs),
    Break(BreakArgs),
    Doctor(DoctorArgs),
    Dashboard(DashboardArgs),
    Demo(DemoArgs),
    Ensemble(EnsembleArgs),
    Torture(TortureArgs),
    Elect(ElectArgs),
    Rendezvous(RendezvousArgs),
    Once(OnceArgs),
    Note(NoteArgs),
    Ls(LsArgs),
    Tree(TreeShowArgs),
    Get(GetArgs),
    Set(SetArgs),
    /// Set the data of a node, and create it if it is missing: `set --create`.
    #[command(
        hide = true,
        after_help = "Example:\n  bellwether put /config/limits '{\"jobs\": 4}'"
    )]
    Put(SetArgs),
    /// Print the version.
    #[command(hide = true, after_help = "Example:\n  bellwether version")]
    Version,
    Create(CreateArgs),
    Rm(RmArgs),
    Stat(StatArgs),
    Watch(WatchArgs),
    Acl(AclArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Local(LocalArgs),
    Serve(ServeArgs),
    /// Print a transaction log, of this server or of Apache's.
    ///
    /// One line per transaction: its offset, zxid, time, session and xid, what it does, its size and the digest of the tree after it. The
    /// last line says how the file ends: clean, torn (a crash left half a record, which no client was told about) or damaged.
    ///
    /// Exit code: 0; 1 if the file is damaged; 125 if it cannot be read.
    #[command(after_help = "Example:\n  bellwether log /var/lib/bellwether/version-2/log.1")]
    Log(DataFileArgs),
    /// Print a snapshot, of this server or of Apache's.
    ///
    /// One line per session, then one line per node: its offset, path, data, access list and stat as they are stored (cversion counts
    /// the children ever created). The last line says whether the checksums match, and how many nodes have an access list that is
    /// missing in the file. Snapshots compressed with gzip or snappy are recognised by their names.
    ///
    /// Exit code: 0; 1 if the file is damaged; 125 if it cannot be read.
    #[command(
        after_help = "Example:\n  bellwether snapshot --json /var/lib/bellwether/version-2/snapshot.0 | jq -r '.path // empty'"
    )]
    Snapshot(DataFileArgs),
    Completions(CompletionsArgs),
    Complete(CompleteArgs),
    Man(ManArgs),
}

/// Inspect, start or stop the local server of this user.
///
/// There is one for each user and host, on a Unix socket that other users cannot connect to. Commands without --connect start it when
/// they need it, and start it again if it was killed. It exits when no command has used it for ten minutes. Its data stays in its
/// folder.
///
/// Exit code: 0; 1 if `status` finds no running server, or `stop` finds it in use; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  bellwether local status\n  bellwether local status --json | jq -r .pid\n  bellwether local stop"
)]
pub(crate) struct LocalArgs {
    /// The folder of another local server, as BELLWETHER_LOCAL names it.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) local: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: LocalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LocalCommand {
    /// Show whether it runs, and where.
    #[command(after_help = "Example:\n  bellwether local status --json | jq -r .pid")]
    Status,
    /// Start it, if it does not run yet.
    #[command(after_help = "Example:\n  bellwether local start")]
    Start,
    /// Stop it. Refused while commands use it, which are listed then.
    #[command(after_help = "Example:\n  bellwether local stop")]
    Stop {
        /// Stop it even if commands use it. Those commands start it again, and keep their holds.
        #[arg(long)]
        force: bool,
    },
    /// Print its log.
    #[command(after_help = "Example:\n  bellwether local log")]
    Log,
    /// Print the path of its folder.
    #[command(after_help = "Example:\n  du -s \"$(bellwether local path)\"")]
    Path,
}

/// The place in help of the options that every command has: behind its own, and before `--help`.
pub(super) const LAST: usize = 998;

/// The heading of the options of the connection.
const CONNECTION: &str = "Connection";

/// Whether an option is one of the connection, with its security.
pub(crate) fn is_about_connection(arg: &Arg) -> bool {
    [Some(CONNECTION), Some(security::SECURITY)].contains(&arg.get_help_heading())
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// The servers: HOST:PORT,HOST:PORT/CHROOT, unix:/PATH for a Unix socket, or `local` for the local server of this user.
    ///
    /// By default, the value of `connect` in ~/.config/bellwether.toml or /etc/bellwether.toml, or else the local server.
    #[arg(
        short,
        long,
        help_heading = CONNECTION,
        value_name = "SERVERS",
        env = servers::VARIABLE,
        hide_env_values = true,
        value_parser = servers::parse
    )]
    pub(crate) connect: Option<String>,
    /// Use another local server, with this folder. Its locks do not exclude commands that use other servers. BELLWETHER_LOCAL does the
    /// same.
    #[arg(long, help_heading = CONNECTION, hide_short_help = true, value_name = "DIR")]
    pub(crate) local: Option<PathBuf>,
    /// How long the servers keep a hold after they last heard from its holder.
    ///
    /// By default 15s, or 30s if --connect names several servers. Holds survive an ensemble without a leader for about half of this time.
    #[arg(long, help_heading = CONNECTION, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) session_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DataFileArgs {
    /// The path of the file, or of a data folder, whose newest file is printed.
    pub(crate) file: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a server that speaks the ZooKeeper protocol.
///
/// Stops on SIGTERM and SIGINT, and with the terminal that it was started on. SIGHUP makes it read its settings, certificates and users
/// again; a setting that only a restart can change is named. Notifies systemd when it is ready. RUST_LOG sets the log level.
///
/// Exit code: 0 when it was told to stop, or after a repair; 1 if the answer to --repair was no; 2 if settings do not fit
/// together, or if --repair can neither ask nor has --yes; 125 if bellwether failed.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether serve --data /var/lib/bellwether --tick-time 500ms --words 'ruok,srvr,mntr'"
)]
pub(crate) struct ServeArgs {
    /// Listen at this address, or on this Unix socket; may be given more than once, but with one socket. By default 127.0.0.1:2181, or
    /// the address in --config.
    #[arg(short, long, value_name = "ADDRESS:PORT|unix:PATH", value_parser = ListenAddress::parse)]
    pub(crate) listen: Vec<ListenAddress>,
    /// Read settings from a file in the format of zoo.cfg. Flags override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Start even if --config has security settings that this server does not support, such as Kerberos.
    #[arg(long, requires = "config")]
    pub(crate) ignore_unsupported: bool,
    /// Start a single server even if --config names the members of an ensemble.
    #[arg(long, requires = "config")]
    pub(crate) standalone: bool,
    /// Store the data in this folder, in the format of Apache ZooKeeper. Without it, the data is only in memory.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Restore a backup, or a snapshot of Apache's server, into the data folder first, which must be empty.
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) restore: Option<PathBuf>,
    /// Continue with higher zxids, and so fencing tokens, than were ever assigned here. --restore and --repair do so by themselves, and so
    /// does a start that notices a copied folder. Use this after a disk or virtual machine was set back, or before an import.
    #[arg(long)]
    pub(crate) new_epoch: bool,
    /// Write a backup to this folder, which is created if it does not exist, on each SIGUSR1, and on POST /api/backup of --http with --allow-actions: a consistent snapshot, while
    /// the server continues to serve.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) backups: Option<PathBuf>,
    /// Do not serve: show what is damaged in the data files and what has to be cut off before a start, and do so after confirmation.
    /// What is cut off is kept beside the files.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Repair without confirmation.
    #[arg(long, requires = "repair")]
    pub(crate) yes: bool,
    /// The time unit of the server (tickTime): sessions expire at multiples of it.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) tick_time: Option<Duration>,
    /// The shortest session timeout that is granted.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) min_session_timeout: Option<Duration>,
    /// The longest session timeout that is granted.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) max_session_timeout: Option<Duration>,
    /// Accept at most N connections; 0, the default, for as many as the limit of open files leaves room for.
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<usize>,
    /// Accept at most N connections from one address, or from one IPv6 network of 64 bits; 0 for no limit. By default 60.
    #[arg(long, value_name = "N")]
    pub(crate) max_connections_per_address: Option<usize>,
    /// Accept at most N connections from each user of the Unix socket, except root and the user of the server; 0, the default, for half
    /// of all connections.
    #[arg(long, value_name = "N")]
    pub(crate) max_connections_per_user: Option<usize>,
    /// Stop reading requests while N are unanswered (backpressure).
    #[arg(long, value_name = "N")]
    pub(crate) max_outstanding: Option<usize>,
    /// The largest request that is accepted.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_frame_bytes: Option<usize>,
    /// Refuse writes that make the tree larger than this; half of the usable memory by default.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_tree_bytes: Option<usize>,
    /// Refuse to create more than N nodes; 0 for no limit.
    #[arg(long, value_name = "N")]
    pub(crate) max_tree_nodes: Option<usize>,
    /// Refuse writes that make the tree larger while the disk has less free; 1 % of it by default, at most 64 MiB. 0 for no limit.
    #[arg(long, value_name = "BYTES")]
    pub(crate) min_free_disk: Option<u64>,
    /// Log requests whose answer takes this long, with the time of each stage; `off` for none. By default 1s.
    #[arg(long, value_name = "TIME", value_parser = threshold)]
    pub(crate) slow_request: Option<Duration>,
    /// Answer these four-letter words, such as `ruok,srvr`, or `*` for all.
    #[arg(long, value_name = "LIST", value_parser = WordList::parse)]
    pub(crate) words: Option<WordList>,
    /// Allow nodes with a time to live (TTL).
    #[arg(long)]
    pub(crate) extended_types: bool,
    /// Also serve the dashboard at / and metrics for Prometheus at /metrics, at this address.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address::parse)]
    pub(crate) http: Option<SocketAddr>,
    /// Serve --http by TLS, with the certificate of --cert, or that of --config.
    #[arg(long, requires = "http")]
    pub(crate) http_tls: bool,
    #[command(flatten)]
    pub(crate) pages: PageArgs,
    #[command(flatten)]
    pub(crate) security: ServeSecurityArgs,
    /// Be the local server of this folder. Commands start it with this flag.
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub(crate) local: Option<PathBuf>,
    /// How long a local server waits unused before it exits.
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration::parse, default_value = "10m", env = "BELLWETHER_IDLE_EXIT")]
    pub(crate) idle_exit: Duration,
}

/// A duration, or `off` for none.
fn threshold(text: &str) -> Result<Duration, String> {
    match text {
        "off" => Ok(Duration::ZERO),
        text => duration::parse(text),
    }
}

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether completions bash > ~/.local/share/bash-completion/completions/bellwether
  bellwether completions zsh > ~/.zfunc/_bellwether    # with fpath+=~/.zfunc before compinit in ~/.zshrc
  bellwether completions fish > ~/.config/fish/completions/bellwether.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Print what may stand at the end of a command line, for completion scripts.
#[derive(Debug, clap::Args)]
#[command(
    hide = true,
    after_help = "Example:\n  bellwether complete -- bellwether lock jobs/ni"
)]
pub(crate) struct CompleteArgs {
    /// The words of the command line. The last one is at the cursor, and may be empty.
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}

/// Show a page of the manual, or write all pages to a folder.
///
/// On a terminal, `man` shows the page. Elsewhere its source is printed.
///
/// Exit code: 0; 2 if there is no such command; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether man lock
  bellwether man queue take
  bellwether man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command whose page is shown; or a folder, with a slash in its name, for a page per command. It is created if it is missing.
    #[arg(value_name = "COMMAND|FOLDER")]
    pub(crate) what: Vec<OsString>,
}

/// The name and version of this program, as `--version` prints them.
pub(crate) fn version() -> String {
    let version = Args::command().render_version();
    version.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn commands_are_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_of_every_command_says_what_it_does_and_ends_in_an_example() {
        fn check(command: &Command) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            let example = command.get_after_help().map(ToString::to_string);
            assert!(
                example
                    .is_some_and(|text| text.starts_with("Example") && text.contains("bellwether")),
                "{name}"
            );
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
