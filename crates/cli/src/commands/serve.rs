//! `bellwether serve`: the server in the foreground.

use std::net::SocketAddr;

use anyhow::Context;
use bellwether_server::{Config, Server, zoo_cfg};
use sd_notify::NotifyState;

use crate::args::ServeArgs;
use crate::exit::Exit;
use crate::local;
use crate::output::Output;
use crate::signals::Signals;

#[tokio::main]
pub(crate) async fn run(args: ServeArgs, output: Output) -> anyhow::Result<Exit> {
    if let Some(folder) = args.local {
        return local::serve(folder, args.idle_exit).await;
    }
    let config = config(args, output)?;
    if config.data_dir.is_none() {
        output.notice("the data is kept in memory; --data FOLDER keeps it on disk");
    }
    let mut signals = Signals::catch()?;
    let server = Server::start(config)
        .await
        .context("the server cannot start")?;
    let addresses: Vec<_> = server
        .addresses()
        .iter()
        .map(SocketAddr::to_string)
        .collect();
    output.notice(format_args!("serving on {}", addresses.join(", ")));
    notify(NotifyState::Ready);
    tokio::select! {
        error = server.failed() => return Err(error.into()),
        signal = signals.next() => tracing::info!(signal = signal.as_raw(), "stopping"),
    }
    notify(NotifyState::Stopping);
    server.shutdown().await;
    Ok(Exit::Done)
}

/// The settings: defaults, then the file, then the flags.
fn config(args: ServeArgs, output: Output) -> anyhow::Result<Config> {
    let mut config = match &args.config {
        Some(path) => {
            let file = zoo_cfg::read(path)?;
            for warning in file.warnings {
                output.notice(format_args!("{}: {warning}", path.display()));
            }
            file.config
        }
        None => Config {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 2181))],
            ..Config::default()
        },
    };
    if !args.listen.is_empty() {
        config.listen = args.listen;
    }
    if args.data.is_some() {
        config.data_dir = args.data;
        config.data_log_dir = None;
    }
    set(&mut config.tick, args.tick_time);
    set(
        &mut config.session_timeout_min,
        args.min_session_timeout.map(Some),
    );
    set(
        &mut config.session_timeout_max,
        args.max_session_timeout.map(Some),
    );
    set(&mut config.connections_max, args.max_connections);
    set(
        &mut config.connections_per_address_max,
        args.max_connections_per_address,
    );
    set(&mut config.outstanding_max, args.max_outstanding);
    set(&mut config.frame_bytes_max, args.max_frame_bytes);
    set(&mut config.words, args.words);
    config.extended_types |= args.extended_types;
    Ok(config)
}

fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

/// Tells the service manager, if there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
