//! What can be typed. Types only.

mod inspect;
mod jobs;
mod queues;
mod recipes;
mod security;
mod tree;
mod tx;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bellwether_server::WordList;
use clap::{Parser, Subcommand};

pub(crate) use self::inspect::*;
pub(crate) use self::jobs::*;
pub(crate) use self::queues::*;
pub(crate) use self::recipes::*;
pub(crate) use self::security::*;
pub(crate) use self::tree::*;
pub(crate) use self::tx::*;
use crate::{connect, duration};

/// As in docs/commands.md.
const EXIT_CODES: &str = "\
Example:
  bellwether lock jobs/nightly -- ./backup.sh

Exit codes:
  0        done
  1        the answer is no
  2        wrong usage
  Where a command is run:
  0-255    its own
  128+n    signal n ended it
  122      refused because the one before crashed
  123      the hold was lost
  124      not had within the wait limit, or at once; -E N for another
  125      bellwether failed
  126      the command cannot be run
  127      the command is not found";

/// Coordination for programs on one host or on many.
#[derive(Debug, Parser)]
#[command(
    name = "bellwether",
    version,
    after_help = "Example:\n  bellwether lock jobs/nightly -- ./backup.sh",
    after_long_help = EXIT_CODES
)]
pub(crate) struct Args {
    /// Say nothing but errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Be the keeper of the job that the rest tells of; the front starts it so.
    #[arg(long, hide = true)]
    pub(crate) keeper: bool,
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
    Why(WhyArgs),
    Revoke(RevokeArgs),
    Break(BreakArgs),
    Doctor(DoctorArgs),
    Ensemble(EnsembleArgs),
    Elect(ElectArgs),
    Rendezvous(RendezvousArgs),
    Once(OnceArgs),
    Note(NoteArgs),
    Ls(LsArgs),
    Tree(TreeShowArgs),
    Get(GetArgs),
    Set(SetArgs),
    Create(CreateArgs),
    Rm(RmArgs),
    Stat(StatArgs),
    Watch(WatchArgs),
    Acl(AclArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Local(LocalArgs),
    Serve(ServeArgs),
    /// Print a log file of a data folder, whichever server wrote it.
    ///
    /// One line a transaction: where it begins, its zxid, time, session and xid, what it does, its bytes and the digest
    /// of the tree after it. The last line tells how the file ends: clean, torn (a crash left half a record, which
    /// nobody was told of) or damaged.
    ///
    /// Exit code: 0; 1 if the file is damaged; 125 if it cannot be read.
    #[command(after_help = "Example:\n  bellwether log /var/lib/bellwether/version-2/log.1")]
    Log(DataFileArgs),
    /// Print a snapshot of a data folder, whichever server wrote it.
    ///
    /// One line a session, then one line a node: where it begins, path, data, access list and numbers as they are
    /// stored (cversion counts the children ever created). The last line tells whether the checksums match, and how many
    /// nodes there are whose access lists the file lacks. Snapshots packed by gzip or snappy are known by their names.
    ///
    /// Exit code: 0; 1 if the file is damaged; 125 if it cannot be read.
    #[command(
        after_help = "Example:\n  bellwether snapshot --json /var/lib/bellwether/version-2/snapshot.0 | jq -r '.path // empty'"
    )]
    Snapshot(DataFileArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Look at this user's local server, start it or stop it.
///
/// There is one for each user and host, on a Unix socket to which other users cannot connect. Commands without --connect start it
/// when they need it, and start it again if it was killed. It leaves when no command has used it for ten minutes. Its data stays
/// in its folder.
///
/// Exit code: 0; 1 if `status` finds that it does not run, or `stop` that it is in use; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  bellwether local status\n  bellwether local status --json | jq -r .pid\n  bellwether local stop"
)]
pub(crate) struct LocalArgs {
    /// The folder of another local server; BELLWETHER_LOCAL does the same.
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
    /// Tell whether it runs, and where.
    #[command(after_help = "Example:\n  bellwether local status --json | jq -r .pid")]
    Status,
    /// Start it if it does not run.
    #[command(after_help = "Example:\n  bellwether local start")]
    Start,
    /// End it, unless commands use it; they are named then.
    #[command(after_help = "Example:\n  bellwether local stop")]
    Stop {
        /// End it even if commands use it. Those that still run start it again, and keep what they hold.
        #[arg(long)]
        force: bool,
    },
    /// Print its log.
    #[command(after_help = "Example:\n  bellwether local log")]
    Log,
    /// Print the folder in which it keeps everything.
    #[command(after_help = "Example:\n  du -s \"$(bellwether local path)\"")]
    Path,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// The servers, as HOST:PORT,HOST:PORT/CHROOT, unix:/PATH for a Unix socket, or `local` for this user's server on this host. Without it, what
    /// `connect` in ~/.config/bellwether.toml or /etc/bellwether.toml says, or else the local server.
    #[arg(short, long, value_name = "SERVERS", env = connect::VARIABLE, value_parser = connect::parse_servers)]
    pub(crate) connect: Option<String>,
    /// The folder of the local server, for one besides the server of this user on this host. Commands that use another one are
    /// not excluded. BELLWETHER_LOCAL does the same.
    #[arg(long, value_name = "DIR")]
    pub(crate) local: Option<PathBuf>,
    /// How long the servers keep a hold after they last heard of its holder; 15s, or 30s where several servers are named. An
    /// ensemble whose leader stands still or is replaced costs no hold for about half of it.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) session_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DataFileArgs {
    /// The file.
    pub(crate) file: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a server that speaks ZooKeeper's protocol.
///
/// Ends on SIGTERM and SIGINT. Tells a service manager when it is ready. RUST_LOG sets what is logged.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether serve --data /var/lib/bellwether --tick-time 500ms --words 'ruok,srvr,mntr'"
)]
pub(crate) struct ServeArgs {
    /// Where to listen; may be given more than once. 127.0.0.1:2181 unless given here or in the file.
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Read settings from a file in the format of zoo.cfg. Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Start although the file has settings that promise protection which this server does not give, such as TLS or SASL.
    #[arg(long, requires = "config")]
    pub(crate) ignore_unsupported: bool,
    /// Keep the data in this folder, in Apache ZooKeeper's format; without one it is kept in memory.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Do not serve: show what is wrong with the data files and what must be given up for a start, and do that after
    /// asking. What is taken from the files is kept beside them.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Repair without asking.
    #[arg(long, requires = "repair")]
    pub(crate) yes: bool,
    /// The unit of time; sessions expire on its boundaries.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) tick_time: Option<Duration>,
    /// The shortest session timeout that clients get.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) min_session_timeout: Option<Duration>,
    /// The longest session timeout that clients get.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) max_session_timeout: Option<Duration>,
    /// Connections in all; 0 for no limit.
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<usize>,
    /// Connections from one address; 0 for no limit.
    #[arg(long, value_name = "N")]
    pub(crate) max_connections_per_address: Option<usize>,
    /// Requests that may be unanswered before reading stops.
    #[arg(long, value_name = "N")]
    pub(crate) max_outstanding: Option<usize>,
    /// The longest request.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_frame_bytes: Option<usize>,
    /// The four-letter words that are answered, such as `ruok,srvr`, or `*` for all.
    #[arg(long, value_name = "LIST", value_parser = WordList::parse)]
    pub(crate) words: Option<WordList>,
    /// Allow nodes with a time to live.
    #[arg(long)]
    pub(crate) extended_types: bool,
    /// Be the local server of this folder; commands start it so.
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub(crate) local: Option<PathBuf>,
    /// When a local server that nobody uses leaves.
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration::parse, default_value = "10m", env = "BELLWETHER_IDLE_EXIT")]
    pub(crate) idle_exit: Duration,
}

/// Print a script that teaches a shell to complete this command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bellwether completions bash > ~/.local/share/bash-completion/completions/bellwether"
)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Show a page of the manual, or write all its pages to a folder.
///
/// On a terminal `man` shows the page; elsewhere it is printed as it is.
///
/// Exit code: 0; 2 if there is no such command; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether man lock
  bellwether man queue take
  bellwether man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command whose page is shown; or a folder, with a slash in it, to which a page for each command is written. It is
    /// made if it is missing.
    #[arg(value_name = "COMMAND|FOLDER")]
    pub(crate) what: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

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
