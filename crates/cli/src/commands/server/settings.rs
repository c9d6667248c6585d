//! The settings of `bellwether serve`: from its configuration file and its flags.

use std::net::SocketAddr;

use anyhow::Context as _;
use bellwether_server::{Config, PageTls, TlsConfig, zoo_cfg};

use crate::args::{ListenAddress, ServeArgs};
use crate::output::Output;
use crate::output::refusal::Refusal;
use crate::traces::LogLevel;

/// What a server is started with, and what SIGHUP makes it read again.
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) log: LogLevel,
}

/// Reads the settings: defaults, then the file, then the flags.
pub(super) fn read(args: ServeArgs, output: Output) -> anyhow::Result<Settings> {
    let mut log = LogLevel::default();
    let mut config = match &args.config {
        Some(path) => {
            let file = zoo_cfg::read(path).with_context(|| path.display().to_string())?;
            if let Some(text) = &file.log {
                log = LogLevel::parse(text).with_context(|| path.display().to_string())?;
            }
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
    if config.tls.as_ref().is_some_and(listens_nowhere) && !args.http_tls {
        let what = "--cert needs --tls-listen or --http-tls";
        return Err(Refusal::usage(what).into());
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
    set(
        &mut config.connections_per_user_max,
        args.max_connections_per_user,
    );
    set(&mut config.outstanding_max, args.max_outstanding);
    set(&mut config.frame_bytes_max, args.max_frame_bytes);
    set(&mut config.tree_bytes_max, args.max_tree_bytes.map(Some));
    set(&mut config.tree_nodes_max, args.max_tree_nodes);
    set(
        &mut config.disk_free_bytes_min,
        args.min_free_disk.map(Some),
    );
    set(&mut config.slow_request, args.slow_request);
    set(&mut config.words, args.words);
    config.extended_types |= args.extended_types;
    config.new_epoch = args.new_epoch;
    check_folder(&config)?;
    Ok(Settings { config, log })
}

/// TLS for the pages, if it is wanted.
pub(super) fn page_tls(args: &ServeArgs, config: &Config) -> anyhow::Result<Option<PageTls>> {
    if !args.http_tls {
        return Ok(None);
    }
    let Some(tls) = &config.tls else {
        let what = "--http-tls needs the certificate of the server";
        let hint = "name it with --cert, or with ssl.keyStore.location in the file of --config";
        return Err(Refusal::usage(what).hint(hint).into());
    };
    let loaded = PageTls::new(tls).context("no TLS for --http")?;
    Ok(Some(loaded))
}

/// Refuses a file in place of the data folder, which would look like a failing disk.
fn check_folder(config: &Config) -> Result<(), Refusal> {
    let folders = [&config.data_dir, &config.data_log_dir];
    let file = folders.into_iter().flatten().find(|path| path.is_file());
    file.map_or(Ok(()), |file| {
        let what = format!("the data needs a folder, and {} is a file", file.display());
        Err(Refusal::usage(what))
    })
}

/// Whether the certificate is for pages only.
fn listens_nowhere(tls: &TlsConfig) -> bool {
    tls.listen.is_empty()
}

fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}
