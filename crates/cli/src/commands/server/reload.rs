//! SIGHUP: a running server reads its settings again.

use anyhow::Context as _;
use bellwether_server::{PageTls, Server};
use sd_notify::NotifyState;

use super::service_manager::{notify, notify_reloading};
use super::settings;
use crate::args::ServeArgs;
use crate::output::Output;
use crate::signals::Hangups;

/// Reads the settings again on each SIGHUP. Returns when the terminal is gone that the server was started on.
pub(super) async fn on_hangups(
    mut hangups: Hangups,
    server: &Server,
    page_tls: Option<&PageTls>,
    args: &ServeArgs,
    output: Output,
) {
    while hangups.next().await.is_some() {
        notify_reloading();
        match reload(server, page_tls, args, output) {
            Ok(()) => {}
            Err(error) => {
                output.error(&error.context("the settings stay as they were"));
            }
        }
        notify(NotifyState::Ready);
    }
}

fn reload(
    server: &Server,
    page_tls: Option<&PageTls>,
    args: &ServeArgs,
    output: Output,
) -> anyhow::Result<()> {
    let settings = settings::read(args.clone(), output)?;
    let tls = settings.config.tls.clone();
    let reloaded = server.reload(settings.config)?;
    if let (Some(pages), Some(tls)) = (page_tls, tls) {
        // The same files as the server has just loaded.
        pages
            .reload(&tls)
            .context("the pages keep their certificate")?;
    }
    settings.log.apply()?;
    for key in reloaded.needs_restart {
        output.say(format_args!(
            "{key} has changed, but only a restart applies it"
        ));
    }
    let applied = match reloaded.applied.is_empty() {
        true => "no setting has changed".to_owned(),
        false => format!("changed: {}", reloaded.applied.join(", ")),
    };
    output.notice(format_args!(
        "settings, certificates and users were read again; {applied}"
    ));
    Ok(())
}
