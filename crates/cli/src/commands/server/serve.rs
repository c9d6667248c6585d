//! `bellwether serve`: the server in the foreground.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::anyhow;
use bellwether_server::{Config, Server, zoo_cfg};
use sd_notify::NotifyState;

use crate::args::{ListenAddress, PageArgs, ServeArgs};
use crate::commands::look::dashboard;
use crate::commands::server::{advice, backup, repair};
use crate::exit::Exit;
use crate::local;
use crate::output::Output;
use crate::output::refusal::Refusal;
use crate::signals::Signals;

#[tokio::main]
pub(crate) async fn run(args: ServeArgs, output: Output) -> anyhow::Result<Exit> {
    if let Some(folder) = args.local {
        return local::server::run(folder, args.idle_exit).await;
    }
    let (wants_repair, yes) = (args.repair, args.yes);
    let folder_flag = folder_flag(&args);
    let (restored_from, backups) = (args.restore.clone(), args.backups.clone());
    let http = args.http;
    let (config, pages) = config(args, output)?;
    if let (Some(file), Some(folder)) = (restored_from, &config.data_dir) {
        let restored = bellwether_server::restore(&file, folder)?;
        output.notice(format_args!(
            "restored {} nodes as of write {:#x} from {}",
            restored.nodes,
            restored.zxid,
            file.display()
        ));
    }
    if wants_repair {
        return repair::run(&config, yes, output);
    }
    let where_data_is = match &config.data_dir {
        Some(_) => "",
        None => "; the data is only in memory, --data FOLDER stores it on disk",
    };
    let mut signals = Signals::to_end()?;
    let server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => {
            let hint = advice::for_start(&error, &folder_flag);
            output.error(&anyhow::Error::new(error).context("the server cannot start"));
            hint.inspect(|hint| output.hint(hint));
            return Ok(Exit::Failed);
        }
    };
    // Before anything reports that the server is ready.
    let listener = match http {
        Some(address) => Some(dashboard::listen(address).await?),
        None => None,
    };
    let plain = server.addresses().iter().map(SocketAddr::to_string);
    let secure = server.tls_addresses().iter();
    let secure = secure.map(|address| format!("{address} (TLS)"));
    let socket = server
        .unix_socket()
        .map(|path| format!("unix:{}", path.display()));
    let addresses: Vec<_> = plain.chain(secure).chain(socket).collect();
    output.notice(format_args!(
        "serving on {}{where_data_is}",
        addresses.join(", ")
    ));
    notify(NotifyState::Ready);
    let dashboard = async {
        match listener {
            Some(listener) => {
                dashboard::beside(&server, listener, &pages, backups.clone(), output).await
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        failure = server.failed() => {
            let hint = advice::for_failure(&failure);
            output.error(&failure.into());
            hint.inspect(|hint| output.hint(hint));
            return Ok(Exit::Failed);
        }
        ended = dashboard => return Err(ended.err().unwrap_or_else(|| anyhow!("the dashboard ended"))),
        signal = signals.next() => tracing::info!(signal = signal.as_raw(), "stopping"),
        error = backup::write_on_signals(server.monitor(), backups.clone(), output) => return Err(error),
    }
    notify(NotifyState::Stopping);
    server.shutdown().await;
    Ok(Exit::Done)
}

/// The flag that named the data folder.
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
fn config(args: ServeArgs, output: Output) -> anyhow::Result<(Config, PageArgs)> {
    let mut config = match &args.config {
        Some(path) => {
            let file = zoo_cfg::read(path)?;
            for warning in file.warnings {
                output.notice(format_args!("{}: {warning}", path.display()));
            }
            if args.ignore_unsupported {
                for setting in &file.config.unsupported {
                    output.notice(format_args!(
                        "{}: {setting} is not supported, and ignored",
                        path.display()
                    ));
                }
            }
            if args.standalone && !file.config.members.is_empty() {
                output.notice(format_args!(
                    "{}: {} ignored, because of --standalone",
                    path.display(),
                    file.config.members.join(", ")
                ));
            }
            Config {
                ignore_unsupported: args.ignore_unsupported,
                standalone: args.standalone,
                ..file.config
            }
        }
        None => Config {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 2181))],
            ..Config::default()
        },
    };
    if !args.listen.is_empty() || args.security.listens_for_tls() && args.config.is_none() {
        config.listen.clear();
    }
    for address in args.listen {
        match address {
            ListenAddress::Tcp(address) => config.listen.push(address),
            ListenAddress::Unix(path) => {
                if let Some(other) = config.listen_unix.replace(path) {
                    let what = format!(
                        "a server listens on one Unix socket, and --listen names another: {}",
                        other.display()
                    );
                    return Err(Refusal::usage(what).into());
                }
            }
        }
    }
    args.security.apply(&mut config);
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
    Ok((config, args.pages))
}

fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

/// Notifies the service manager, if there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
