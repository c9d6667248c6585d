//! Arguments of `torture`.

use std::path::PathBuf;
use std::time::Duration;

use bellwether_torture::{Op, Recipe};

use super::ConnectArgs;
use crate::value::{duration, node_path};

/// Run recipes from many processes under faults, and check that every guarantee is kept.
///
/// Starts client processes that use all recipes at once on the servers you name, below a path of its own. Kills and stops
/// those processes, and cuts, delays and holds back their connections; the servers are left alone, so that you can restart,
/// kill and partition them meanwhile. Each client records what it does and when. When the time is over, all faults end, every client must
/// get through again, and the histories are checked: exclusion, order, fencing tokens, crash marks, nothing lost
/// or doubled, sums, barriers, decisions, values that are linearizable, members and live copies.
///
/// With --embedded, it starts a server in a temporary folder and also kills that, again and again. With --ensemble, it starts
/// members of Apache ZooKeeper, from the jars of Debian's package, and kills, stops, separates, slows and restarts them.
///
/// The first interrupt ends the faults, and what was recorded is checked. A run of more than 30 seconds is checked
/// every 30 seconds, with the next seed each time. The same seed gives the same faults; what they hit depends on
/// the machine. All clients are on this host: clocks of hosts cannot be compared.
///
/// Exit code: 0 if every guarantee was kept; 1 if one was broken; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether torture --embedded
  bellwether torture --ensemble 3 --for 5m
  bellwether torture -c zk1,zk2,zk3 --for 10m --report /tmp/torture
  bellwether torture -c zk1,zk2,zk3 --recipes lock,queue --no-faults --json | jq .right")]
pub(crate) struct TortureArgs {
    /// Use only these recipes, separated by commas; all by default.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) recipes: Vec<Recipe>,
    /// How long to inject faults, including the checks in between.
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse, default_value = "60s")]
    pub(crate) time: Duration,
    /// The number of client processes, from 3 to 64.
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(3..=64))]
    pub(crate) clients: u32,
    /// The seed of the faults; by default, one from the clock.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write a report to this folder: index.html with figures and timelines, summary.json, and history.jsonl, the last history.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) report: Option<PathBuf>,
    /// Inject no faults: only check the guarantees.
    #[arg(long)]
    pub(crate) no_faults: bool,
    /// Hide these features of the servers from the clients, to test the recipes as on servers that lack them; separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) without: Vec<ServerFeature>,
    /// Start a server in a temporary folder, and also kill and restart it.
    #[arg(long, conflicts_with_all = ["connect", "local"])]
    pub(crate) embedded: bool,
    /// Start an ensemble of N members of Apache ZooKeeper, and inject faults there too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=7), conflicts_with_all = ["connect", "local", "embedded"])]
    pub(crate) ensemble: Option<u8>,
    /// The path of all its nodes. They are deleted at the end, unless a guarantee was broken.
    #[arg(long, value_name = "PATH", default_value = "/torture", value_parser = node_path::parse)]
    pub(crate) path: String,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Be one of the clients. The process that starts them sets this flag.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) orders: Option<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// A feature that not all servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerFeature {
    Create2,
    Containers,
    Ttl,
    PersistentWatches,
    MultiRead,
    RemoveWatches,
}

impl ServerFeature {
    /// The operation of the protocol that provides it.
    pub(crate) fn op(self) -> Op {
        match self {
            Self::Create2 => Op::Create2,
            Self::Containers => Op::CreateContainer,
            Self::Ttl => Op::CreateTtl,
            Self::PersistentWatches => Op::AddWatch,
            Self::MultiRead => Op::MultiRead,
            Self::RemoveWatches => Op::RemoveWatches,
        }
    }
}
