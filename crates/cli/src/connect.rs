//! A session for a command: with the servers that somebody has named, or with the local one.

use std::time::Duration;

use anyhow::Context;
use bellwether::zk::{Address, Endpoint};
use bellwether::{Client, Connect, ConnectError, Who};
use tokio::time::timeout;

use crate::args::ConnectArgs;
use crate::config_file::ConfigFile;
use crate::job::Variable;
use crate::local::{self, Folder};
use crate::local_dial::LocalDial;
use crate::output::{Hinted, Output};
use crate::refusal::Refusal;
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
    let named = servers(args)?;
    let security = match named.as_deref() {
        None | Some(LOCAL) => Security::local(&args.security, &file, output)?,
        Some(_) => Security::of(&args.security, &file, output).await?,
    };
    let options = |servers: &str| {
        let connect = bellwether::connect(servers)
            .session_timeout(session_timeout(args, servers))
            .on_current_runtime();
        options(security.apply(connect))
    };
    match named.as_deref() {
        None | Some(LOCAL) => {
            let folder = Folder::choose(args.local.as_deref())?;
            // A user that names the local server knows where it is, but not a file that names it for all commands.
            if args.connect.is_none() && (named.is_none() || folder.is_chosen()) {
                announce(&folder, output);
            }
            connect_local(&folder, options).await
        }
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
fn session_timeout(args: &ConnectArgs, servers: &str) -> Duration {
    let default = match servers.contains(',') {
        true => ENSEMBLE_SESSION_TIMEOUT,
        false => SESSION_TIMEOUT,
    };
    args.session_timeout.unwrap_or(default)
}

/// Says which local server is used, and that a lock there excludes nobody else.
fn announce(folder: &Folder, output: Output) {
    let (user, host) = (Who::user_of_process(), local::host());
    if folder.is_chosen() {
        output.notice(format_args!(
            "local server of {user} in {}; other folders, hosts and users are not excluded",
            folder.path().display()
        ));
    } else {
        output.notice(format_args!(
            "local server of {user} on {host}; other hosts and users are not excluded"
        ));
    }
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
    match (&args.connect, &args.local) {
        (Some(servers), Some(_)) if servers != LOCAL => {
            let what = format!("--local is given, and --connect or {VARIABLE} names {servers}");
            Err(Refusal::usage(what)
                .hint("--connect local means the local server")
                .into())
        }
        (Some(servers), _) => Ok(Some(servers.clone())),
        (None, Some(_)) => Ok(None),
        (None, None) => Ok(ConfigFile::read()?.connect),
    }
}

/// The session timeout that a session with these arguments asks for.
pub(crate) fn asked_timeout(args: &ConnectArgs) -> anyhow::Result<Duration> {
    let servers = servers(args)?;
    Ok(session_timeout(args, servers.as_deref().unwrap_or(LOCAL)))
}

/// Where servers are.
pub(crate) enum Whereabouts {
    /// The local one, in this folder.
    Local(Folder),
    /// Each by itself.
    Named(Vec<Endpoint>),
}

/// Where the servers are that these arguments mean.
pub(crate) fn whereabouts(args: &ConnectArgs) -> anyhow::Result<Whereabouts> {
    match servers(args)?.as_deref() {
        None | Some(LOCAL) => Ok(Whereabouts::Local(Folder::choose(args.local.as_deref())?)),
        Some(servers) => Ok(Whereabouts::Named(Address::parse(servers)?.endpoints)),
    }
}

/// The variables by which commands within a job mean the same servers.
pub(crate) fn variables(args: &ConnectArgs) -> anyhow::Result<Vec<Variable>> {
    let servers = servers(args)?.unwrap_or_else(|| LOCAL.to_owned());
    let mut variables = Vec::new();
    if servers == LOCAL {
        let folder = Folder::choose(args.local.as_deref())?;
        if folder.is_chosen() {
            variables.push((local::VARIABLE, Some(folder.path().into())));
        }
    }
    variables.push((VARIABLE, Some(servers.into())));
    Ok(variables)
}

async fn connect_local(
    folder: &Folder,
    options: impl Fn(&str) -> Connect,
) -> anyhow::Result<Client> {
    let mut tries = 0;
    loop {
        tries += 1;
        let server = folder.find_or_start().await.context("no local server")?;
        let process = local::process(&server);
        let dial = LocalDial::new(folder.clone(), server);
        match options(LOCAL).dial(dial).fail_fast().await {
            Ok(client) => return Ok(client),
            // Unless it was about to leave, another try would be no better.
            Err(ConnectError::Unreachable { .. })
                if tries < LOCAL_TRIES_MAX && folder.until_gone(process).await? => {}
            Err(ConnectError::Unreachable { .. }) => {
                let what = format!(
                    "the local server in {} does not answer",
                    folder.path().display()
                );
                let hint = format!("see {}", folder.log().display());
                return Err(Hinted::new(what, hint).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}
