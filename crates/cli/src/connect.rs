//! A session for a command: with the servers it names, or with the local one.

use anyhow::Context;
use bellwether::{Client, Connect, ConnectError};

use crate::args::ConnectArgs;
use crate::local;
use crate::output::Output;

/// How often a command starts over that met a local server which was just leaving.
const LOCAL_TRIES_MAX: usize = 3;

pub(crate) async fn connect(args: &ConnectArgs, output: Output) -> anyhow::Result<Client> {
    connect_with(args, output, |connect| connect).await
}

/// As [`connect`], with more options of the session.
pub(crate) async fn connect_with(
    args: &ConnectArgs,
    output: Output,
    options: impl Fn(Connect) -> Connect,
) -> anyhow::Result<Client> {
    match args.connect.as_deref() {
        // An empty variable is an unset one.
        None | Some("") => {
            let (user, host) = (local::user(), local::host());
            output.notice(format_args!(
                "local server of {user} on {host}; other hosts and users are not excluded"
            ));
            connect_local(args, options).await
        }
        Some("local") => connect_local(args, options).await,
        Some(servers) => {
            let connect = bellwether::connect(servers)
                .session_timeout(args.session_timeout)
                .on_current_runtime();
            Ok(options(connect).await?)
        }
    }
}

async fn connect_local(
    args: &ConnectArgs,
    options: impl Fn(Connect) -> Connect,
) -> anyhow::Result<Client> {
    let folder = local::Folder::of_user()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let address = folder.find_or_start().await.context("no local server")?;
        let connect = bellwether::connect(address.to_string())
            .session_timeout(args.session_timeout)
            .on_current_runtime()
            .fail_fast();
        match options(connect).await {
            Ok(client) => return Ok(client),
            Err(ConnectError::Unreachable { .. }) if tries < LOCAL_TRIES_MAX => {
                folder.until_gone(address).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
