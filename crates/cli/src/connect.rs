//! A session for a command: with the servers that somebody has named, or with the local one.

use std::time::Duration;

use anyhow::Context;
use bellwether::{Client, ConnectError};
use tokio::time::timeout;

use crate::args::ConnectArgs;
use crate::config_file::ConfigFile;
use crate::local;
use crate::output::{Hinted, Output};

/// How often a command starts over that met a local server which was just leaving.
const LOCAL_TRIES_MAX: usize = 3;

/// A server that takes longer to answer is told of.
const SILENT_WAIT: Duration = Duration::from_secs(1);

pub(crate) async fn connect(args: &ConnectArgs, output: Output) -> anyhow::Result<Client> {
    // An empty variable is an unset one.
    let named = args.connect.clone().filter(|servers| !servers.is_empty());
    let servers = match named {
        Some(servers) => Some(servers),
        None => ConfigFile::read()?.connect,
    };
    match servers.as_deref() {
        None => {
            let (user, host) = (local::user(), local::host());
            output.notice(format_args!(
                "local server of {user} on {host}; other hosts and users are not excluded"
            ));
            connect_local(args).await
        }
        Some("local") => connect_local(args).await,
        Some(servers) => connect_to(servers, args, output).await,
    }
}

async fn connect_to(servers: &str, args: &ConnectArgs, output: Output) -> anyhow::Result<Client> {
    let connected = bellwether::connect(servers)
        .session_timeout(args.session_timeout)
        .on_current_runtime()
        .into_future();
    let mut connected = std::pin::pin!(connected);
    let client = match timeout(SILENT_WAIT, &mut connected).await {
        Ok(client) => client,
        Err(_) => {
            output.notice(format_args!("no answer from {servers} yet"));
            connected.await
        }
    };
    client.map_err(|error| match error {
        ConnectError::Unreachable { source, .. } => {
            anyhow::Error::new(source).context(Hinted::new(
                format!("no server answers at {servers}"),
                "start one with `bellwether serve --listen ADDRESS:PORT`, or use --connect local",
            ))
        }
        error => error.into(),
    })
}

async fn connect_local(args: &ConnectArgs) -> anyhow::Result<Client> {
    let folder = local::Folder::of_user()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let server = folder.find_or_start().await.context("no local server")?;
        match bellwether::connect(server.address.to_string())
            .auth("digest", server.secret.credential())
            .session_timeout(args.session_timeout)
            .on_current_runtime()
            .fail_fast()
            .await
        {
            Ok(client) => return Ok(client),
            Err(ConnectError::Unreachable { .. }) if tries < LOCAL_TRIES_MAX => {
                folder.until_gone(&server).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
