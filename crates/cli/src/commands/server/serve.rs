//! `bellwether serve`: the server in the foreground.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::anyhow;
use bellwether_server::Server;
use sd_notify::NotifyState;

use crate::args::ServeArgs;
use crate::commands::look::dashboard;
use crate::commands::server::service_manager::notify;
use crate::commands::server::settings::Settings;
use crate::commands::server::{advice, backup, reload, repair, service_manager, settings};
use crate::exit::Exit;
use crate::local;
use crate::output::Output;
use crate::signals::{Hangups, Signals};

#[tokio::main]
pub(crate) async fn run(args: ServeArgs, output: Output) -> anyhow::Result<Exit> {
    bellwether_server::raise_descriptor_limit();
    if let Some(folder) = args.local {
        return local::server::run(folder, args.idle_exit).await;
    }
    let (wants_repair, yes) = (args.repair, args.yes);
    let folder_flag = folder_flag(&args);
    let (restored_from, backups) = (args.restore.clone(), args.backups.clone());
    let http = args.http;
    let pages = args.pages.clone();
    let Settings { config, log } = settings::read(args.clone(), output)?;
    if let Some(folder) = &backups {
        backup::check_folder(folder, &config)?;
    }
    log.apply()?;
    if let (Some(file), Some(folder)) = (restored_from, &config.data_dir) {
        let restored = bellwether_server::restore(&file, folder)?;
        output.notice(format_args!(
            "restored {} nodes as of write {:#x} from {}; zxids and fencing tokens continue above {:#x}",
            restored.backup.nodes,
            restored.backup.zxid,
            file.display(),
            restored.continues_after
        ));
    }
    if wants_repair {
        return repair::run(&config, yes, output);
    }
    let page_tls = settings::page_tls(&args, &config)?;
    let where_data_is = match &config.data_dir {
        Some(_) => "",
        None => "; the data is only in memory, --data FOLDER stores it on disk",
    };
    // Caught from here on, so that none ends the process while it starts.
    let hangups = Hangups::catch()?;
    let mut signals = Signals::to_end_server()?;
    // Before anything reports that the server is ready.
    let port = match http {
        Some(address) => Some(dashboard::Port::bind(address, page_tls.clone()).await?),
        None => None,
    };
    let started = tokio::select! {
        biased;
        started = Server::start(config) => started,
        () = not_ready(port.as_ref(), "the server is starting") => unreachable!("it never ends"),
    };
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            let hint = advice::for_start(&error, &folder_flag);
            output.error(&anyhow::Error::new(error).context("the server cannot start"));
            hint.inspect(|hint| output.hint(hint));
            return Ok(Exit::Failed);
        }
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
        match &port {
            Some(port) => dashboard::beside(&server, port, &pages, backups.clone(), output).await,
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
        () = reload::on_hangups(hangups, &server, page_tls.as_ref(), &args, output) => tracing::info!("stopping with the terminal"),
        () = service_manager::feed_watchdog(server.monitor()) => unreachable!("it never ends"),
        error = backup::write_on_signals(server.monitor(), backups.clone(), output) => return Err(error),
    }
    notify(NotifyState::Stopping);
    tokio::select! {
        biased;
        () = server.shutdown() => {}
        () = not_ready(port.as_ref(), "the server is stopping") => unreachable!("it never ends"),
    }
    Ok(Exit::Done)
}

/// Answers probes while the server does not serve. Never ends.
async fn not_ready(port: Option<&dashboard::Port>, why: &'static str) {
    match port {
        Some(port) => port.not_ready(why).await,
        None => std::future::pending().await,
    }
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
