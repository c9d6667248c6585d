//! Opens a session for a command: with the servers that it names, or with the local server.

pub(crate) mod patience;
pub(crate) mod prompt;
pub(crate) mod security;
pub(crate) mod session;
mod shortage;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bellwether::error::ConnectError;
use bellwether::zk::{Address, Dial, Endpoint, Sockets, TlsDial};
use bellwether::{Client, Connect};
use tokio::time::timeout;

use crate::args::{ConnectArgs, config_file};
use crate::connect::security::Security;
use crate::local::dial::LocalDial;
use crate::local::{self, Folder, announcement};
use crate::output::Output;
use crate::output::refusal::Refusal;
use crate::value::duration;
use crate::value::servers::{LOCAL, VARIABLE};

/// How often a command connects again if the local server exits at that moment.
const LOCAL_TRIES_MAX: usize = 3;

/// After this time without an answer, a notice is printed.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// Opens a session, with options besides those that the arguments set.
pub(crate) async fn open(
    args: &ConnectArgs,
    output: Output,
    options: impl Fn(Connect) -> Connect,
) -> anyhow::Result<Client> {
    let named = servers(args)?;
    let security = match named.as_deref() {
        None | Some(LOCAL) => Security::local(&args.security, output)?,
        Some(_) => Security::of(&args.security, output).await?,
    };
    let options = |servers: &str| {
        let connect = bellwether::connect(servers)
            .session_timeout(session_timeout(args, servers))
            .on_current_runtime();
        options(security.apply(connect))
    };
    let client = match named.as_deref() {
        None | Some(LOCAL) => {
            let folder = local_folder(args)?;
            // No notice if the user named the local server by a flag or a variable.
            let is_unnamed = args.connect.is_none() && (named.is_none() || folder.is_chosen());
            let is_announced = is_unnamed && announcement::announce(&folder, output);
            let client = connect_local(&folder, options).await?;
            if is_announced {
                announcement::remember(&folder);
            }
            client
        }
        Some(servers) => {
            let mut connected = std::pin::pin!(options(servers).into_future());
            match timeout(SILENT_WAIT, &mut connected).await {
                Ok(client) => client?,
                Err(_) => {
                    output.notice(format_args!("no answer from {servers} yet; still trying"));
                    connected.await?
                }
            }
        }
    };
    tell_granted(args, &client, output);
    Ok(client)
}

/// The default session timeout.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Less is not asked for.
const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// The default for an ensemble: half of it, less the grace of a job, is longer than the election of a leader.
const ENSEMBLE_SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// The session timeout to ask these servers for.
fn session_timeout(args: &ConnectArgs, servers: &str) -> Duration {
    let default = match servers.contains(',') {
        true => ENSEMBLE_SESSION_TIMEOUT,
        false => SESSION_TIMEOUT,
    };
    let asked = args.session_timeout.unwrap_or(default);
    // Servers grant their minimum instead; but until then it is the limit of each attempt to connect.
    asked.max(SESSION_TIMEOUT_MIN)
}

/// Says which timeout the servers have granted, if it is longer than what the user asked for.
fn tell_granted(args: &ConnectArgs, client: &Client, output: Output) {
    let granted = client.session_timeout();
    if let Some(asked) = args.session_timeout.filter(|asked| *asked < granted) {
        output.notice(format_args!(
            "the session timeout is {}, the minimum of the servers, and not {asked:?}",
            duration::text(granted)
        ));
    }
}

/// The folder of the local server.
fn local_folder(args: &ConnectArgs) -> anyhow::Result<Folder> {
    Folder::choose(args.local.as_deref())
}

/// The servers that the arguments or the configuration file name.
pub(crate) fn servers(args: &ConnectArgs) -> anyhow::Result<Option<String>> {
    match (&args.connect, &args.local) {
        (Some(servers), Some(_)) if servers != LOCAL => {
            let what = format!(
                "--local names a local server, but --connect or {VARIABLE} names {servers}"
            );
            Err(Refusal::usage(what)
                .hint("leave one of them out; `--connect local` means the local server")
                .into())
        }
        (Some(servers), _) => Ok(Some(servers.clone())),
        (None, Some(_)) => Ok(None),
        // As the flag does, the variable overrides `connect` in a file.
        (None, None) if local::is_named_by_variable() => Ok(None),
        (None, None) => Ok(config_file::connect().map(str::to_owned)),
    }
}

/// Whether a session with these arguments uses TLS.
pub(crate) fn speaks_tls(args: &ConnectArgs) -> anyhow::Result<bool> {
    Ok(security::tls_options(&args.security)?.is_some())
}

/// How four-letter words reach the servers that the arguments name: as sessions do.
pub(crate) async fn dial_for_words(args: &ConnectArgs) -> anyhow::Result<Arc<dyn Dial>> {
    Ok(match security::tls_options(&args.security)? {
        Some(options) => Arc::new(TlsDial::new(options, Sockets).await?),
        None => Arc::new(Sockets),
    })
}

/// The session timeout that a session with these arguments asks for.
pub(crate) fn asked_timeout(args: &ConnectArgs) -> anyhow::Result<Duration> {
    let servers = servers(args)?;
    let servers = servers.as_deref().unwrap_or(LOCAL);
    Ok(session_timeout(args, servers))
}

/// Addresses of servers.
pub(crate) enum Whereabouts {
    /// The local server, in this folder.
    Local(Folder),
    /// Servers that are named, one by one.
    Named(Vec<Endpoint>),
}

/// The addresses of the servers that the arguments name.
pub(crate) fn whereabouts(args: &ConnectArgs) -> anyhow::Result<Whereabouts> {
    match servers(args)?.as_deref() {
        None | Some(LOCAL) => Ok(Whereabouts::Local(local_folder(args)?)),
        Some(servers) => Ok(Whereabouts::Named(Address::parse(servers)?.endpoints)),
    }
}

/// Environment variables that make commands within a job use the same servers.
pub(crate) fn variables(args: &ConnectArgs) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let servers = servers(args)?.unwrap_or_else(|| LOCAL.to_owned());
    let mut variables = Vec::new();
    if servers == LOCAL {
        let folder = local_folder(args)?;
        if folder.is_chosen() {
            variables.push((local::VARIABLE, folder.path().into()));
        }
    }
    variables.push((VARIABLE, servers.into()));
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
            // Worth another try only if the server is about to exit.
            Err(ConnectError::Unreachable { .. })
                if tries < LOCAL_TRIES_MAX && folder.until_gone(process).await? => {}
            Err(ConnectError::Unreachable { .. }) => {
                let what = format!(
                    "the local server in {} does not answer",
                    folder.path().display()
                );
                let hint = format!("see {}", folder.log().display());
                return Err(Refusal::failed(what).hint(hint).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}
