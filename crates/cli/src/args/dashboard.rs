//! Arguments of the dashboard, as a command of its own and within `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::ConnectArgs;
use crate::value::listen_address;

/// Show locks, elections, queues and nodes in a browser, live.
///
/// Prints the address of the page, and serves it until a signal arrives. Pages show what this session may read. While no page is
/// open, the dashboard sends no requests to the servers.
///
/// Users log in with a token: the one in --token-file, or a random one, which is in the link that is printed at the start. With --open,
/// every user of this host may look without it.
///
/// Exit code: 128+n when signal n ends it; 125 if bellwether failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bellwether dashboard
  bellwether dashboard --connect zk1,zk2,zk3 --allow-actions
  bellwether dashboard --listen 0.0.0.0:8080 --host dash.example.org --token-file ~/.config/bellwether.token")]
pub(crate) struct DashboardArgs {
    /// Serve the pages at this address; port 0 chooses a free port.
    #[arg(
        short,
        long,
        alias = "http",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8080",
        value_parser = listen_address::parse
    )]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) pages: PageArgs,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// Who may use the pages, and for what.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PageArgs {
    /// Let users with the token revoke and break holds, retry dead letters and clear crash marks.
    #[arg(long)]
    pub(crate) allow_actions: bool,
    /// On a loopback address, let every user of this host look without the token. Do not use it behind a proxy: requests with the header of
    /// a proxy need the token, but some proxies send none.
    #[arg(long)]
    pub(crate) open: bool,
    /// A file with the token, of at least 16 characters. Without it, a link with a random token is printed at the start.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Accept this host name in requests to the pages; may be given more than once. Addresses and `localhost` are always accepted.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) host_names: Vec<String>,
}
