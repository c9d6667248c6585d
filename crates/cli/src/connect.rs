//! A session for a command: with the servers that somebody has named, or with the local one.

use std::time::Duration;

use anyhow::Context;
use bellwether::{Client, Connect, ConnectError, Who};
use tokio::time::timeout;

use crate::args::ConnectArgs;
use crate::config_file::ConfigFile;
use crate::local;
use crate::output::Output;
use crate::security::Security;

/// How often a command starts over that met a local server which was just leaving.
const LOCAL_TRIES_MAX: usize = 3;

/// A server that takes longer to answer is told of.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// What names the servers in the environment.
pub(crate) const VARIABLE: &str = "BELLWETHER_CONNECT";

/// What stands for the local server.
const LOCAL: &str = "local";

/// Opens a session, with options besides those that the arguments set.
pub(crate) async fn connect_with(
    args: &ConnectArgs,
    output: Output,
    options: impl Fn(Connect) -> Connect,
) -> anyhow::Result<Client> {
    let file = ConfigFile::read()?;
    let servers = args.connect.as_ref().or(file.connect.as_ref());
    let servers = servers.map(String::as_str);
    let security = match servers {
        None | Some(LOCAL) => Security::local(&args.security, &file, output)?,
        Some(_) => Security::of(&args.security, &file, output).await?,
    };
    let options = |servers: &str| {
        let connect = bellwether::connect(servers)
            .session_timeout(session_timeout(args, servers))
            .on_current_runtime();
        options(security.apply(connect))
    };
    match servers {
        None => {
            let (user, host) = (Who::user_of_process(), local::host());
            output.notice(format_args!(
                "local server of {user} on {host}; other hosts and users are not excluded"
            ));
            connect_local(options).await
        }
        Some(LOCAL) => connect_local(options).await,
        Some(servers) => {
            let mut connected = std::pin::pin!(options(servers).into_future());
            if let Ok(client) = timeout(SILENT_WAIT, &mut connected).await {
                return Ok(client?);
            }
            output.notice(format_args!("no answer from {servers} yet"));
            Ok(connected.await?)
        }
    }
}

/// The session timeout unless one is given.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// The same for an ensemble: half of it, less the grace of a job, is longer than the election of a leader takes.
const ENSEMBLE_SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// The session timeout to ask these servers for.
pub(crate) fn session_timeout(args: &ConnectArgs, servers: &str) -> Duration {
    let default = match servers.contains(',') {
        true => ENSEMBLE_SESSION_TIMEOUT,
        false => SESSION_TIMEOUT,
    };
    args.session_timeout.unwrap_or(default)
}

/// Servers as they are typed. None at all is refused: a variable that a script failed to set must not mean the local
/// server, where a lock excludes nobody on other hosts.
pub(crate) fn parse_servers(text: &str) -> Result<String, String> {
    let (host, chroot) = match text.split_once('/') {
        Some((host, chroot)) => (host, Some(chroot)),
        None => (text, None),
    };
    match (host.trim(), chroot) {
        ("", _) => Err("no server is named; `local` is this user's server on this host".to_owned()),
        (LOCAL, Some(_)) => {
            Err("the local server has no chroot; local:PORT/… is a host of that name".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// The servers that somebody has named.
fn servers(args: &ConnectArgs) -> anyhow::Result<Option<String>> {
    match &args.connect {
        Some(servers) => Ok(Some(servers.clone())),
        None => Ok(ConfigFile::read()?.connect),
    }
}

/// The servers that these arguments mean, as `--connect` takes them.
pub(crate) fn servers_or_local(args: &ConnectArgs) -> anyhow::Result<String> {
    Ok(servers(args)?.unwrap_or_else(|| LOCAL.to_owned()))
}

/// Where servers are.
pub(crate) enum Whereabouts {
    /// The local one, if it runs.
    Local(Option<local::Running>),
    /// Each by itself.
    Named(Vec<String>),
}

/// Where the servers are that these arguments mean.
pub(crate) fn whereabouts(args: &ConnectArgs) -> anyhow::Result<Whereabouts> {
    match servers(args)?.as_deref() {
        None | Some(LOCAL) => Ok(Whereabouts::Local(local::Folder::of_user()?.running()?)),
        Some(servers) => {
            let hosts = servers.split('/').next().unwrap_or_default();
            let hosts = hosts.split(',').map(str::to_owned);
            Ok(Whereabouts::Named(hosts.collect()))
        }
    }
}

async fn connect_local(options: impl Fn(&str) -> Connect) -> anyhow::Result<Client> {
    let folder = local::Folder::of_user()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let server = folder.find_or_start().await.context("no local server")?;
        let connect = options(&server.address.to_string())
            .auth("digest", server.secret.credential())
            .fail_fast();
        match connect.await {
            Ok(client) => return Ok(client),
            Err(ConnectError::Unreachable { .. }) if tries < LOCAL_TRIES_MAX => {
                folder.until_gone(&server).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
