//! `bellwether serve`: the server in the foreground.

use std::net::SocketAddr;
use std::path::Path;

use bellwether_server::{Config, RecoveryError, Server, StartError, zoo_cfg};
use sd_notify::NotifyState;

use crate::args::ServeArgs;
use crate::exit::Exit;
use crate::local_server;
use crate::output::Output;
use crate::repair;
use crate::signals::Signals;

#[tokio::main]
pub(crate) async fn run(args: ServeArgs, output: Output) -> anyhow::Result<Exit> {
    if let Some(folder) = args.local {
        return local_server::run(folder, args.idle_exit).await;
    }
    let (wants_repair, yes) = (args.repair, args.yes);
    let folder_flag = folder_flag(&args);
    let config = config(args, output)?;
    if wants_repair {
        return repair::run(&config, yes, output);
    }
    let where_data_is = match &config.data_dir {
        Some(_) => "",
        None => "; the data is in memory, --data FOLDER keeps it on disk",
    };
    let mut signals = Signals::to_end()?;
    let server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => {
            let hint = hint(&error, &folder_flag);
            output.error(&anyhow::Error::new(error).context("the server cannot start"));
            hint.inspect(|hint| output.hint(hint));
            return Ok(Exit::Failed);
        }
    };
    let addresses: Vec<_> = server
        .addresses()
        .iter()
        .map(SocketAddr::to_string)
        .collect();
    output.notice(format_args!(
        "serving on {}{where_data_is}",
        addresses.join(", ")
    ));
    notify(NotifyState::Ready);
    tokio::select! {
        error = server.failed() => return Err(error.into()),
        signal = signals.next() => tracing::info!(signal = signal.as_raw(), "stopping"),
    }
    notify(NotifyState::Stopping);
    server.shutdown().await;
    Ok(Exit::Done)
}

/// What to do about a server that does not start.
fn hint(error: &StartError, folder_flag: &str) -> Option<String> {
    let error = match error {
        StartError::Data(error) => error,
        StartError::Unsupported { .. } => {
            return Some(
                "clients would be served without the protection that these settings promise; start so with --ignore-unsupported"
                    .to_owned(),
            );
        }
        _ => return None,
    };
    match error {
        RecoveryError::Damaged { .. } | RecoveryError::Gap { .. } => Some(format!(
            "bring the file back from a copy, or see what would be given up with: bellwether serve {folder_flag} --repair"
        )),
        RecoveryError::NoSnapshot | RecoveryError::NoGoodSnapshot { .. } => {
            Some("bring a snapshot back from a copy; `bellwether snapshot FILE` tells whether it is good".to_owned())
        }
        RecoveryError::NoAccessList { .. } => Some(
            "bring another snapshot back from a copy, with the logs behind it; `bellwether snapshot FILE` tells how many nodes lack their access lists"
                .to_owned(),
        ),
        RecoveryError::InUse { .. } => {
            Some("stop that server, or choose another folder with --data".to_owned())
        }
        RecoveryError::Misplaced { .. } => {
            Some("snapshots belong into dataDir, logs into dataLogDir".to_owned())
        }
        _ => None,
    }
}

/// The flag by which the data folder was named, as one types it.
fn folder_flag(args: &ServeArgs) -> String {
    match (&args.data, &args.config) {
        (None, Some(config)) => format!("--config {}", config.display()),
        (data, _) => format!(
            "--data {}",
            data.as_deref().unwrap_or(Path::new("FOLDER")).display()
        ),
    }
}

/// The settings: defaults, then the file, then the flags.
fn config(args: ServeArgs, output: Output) -> anyhow::Result<Config> {
    let mut config = match &args.config {
        Some(path) => {
            let file = zoo_cfg::read(path)?;
            for warning in file.warnings {
                output.notice(format_args!("{}: {warning}", path.display()));
            }
            if args.ignore_unsupported {
                for setting in &file.config.unsupported {
                    output.notice(format_args!(
                        "{}: {setting} is ignored: this server does not support it",
                        path.display()
                    ));
                }
            }
            Config {
                ignore_unsupported: args.ignore_unsupported,
                ..file.config
            }
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
