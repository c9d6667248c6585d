//! `bellwether dashboard`: shows recipes and nodes in a browser.

use std::fs;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use bellwether::zk::{Dial as _, Endpoint, Sockets, four_letter_word};
use bellwether_dashboard::{Dashboard, Member};
use bellwether_server::Server;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::net::TcpListener;

use crate::args::{DashboardArgs, PageArgs};
use crate::commands::server::backup;
use crate::connect::session::in_session;
use crate::connect::{Whereabouts, speaks_tls, whereabouts};
use crate::exit::Exit;
use crate::local::Folder;
use crate::output::Output;

pub(crate) fn run(args: DashboardArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.connect, output, async |client| {
        let (title, members) = match whereabouts(&args.connect)? {
            Whereabouts::Local(folder) => ("local server".to_owned(), vec![local(folder)]),
            Whereabouts::Named(endpoints) => {
                let (title, members) = named(endpoints);
                match speaks_tls(&args.connect)? {
                    // Four-letter words are sent without TLS, which a listener with TLS does not answer.
                    true => {
                        output.notice("with TLS, roles and metrics of the servers are not shown");
                        (title, Vec::new())
                    }
                    false => (title, members),
                }
            }
        };
        let mut dashboard = Dashboard::new(client).title(title);
        for member in members {
            dashboard = dashboard.member(member);
        }
        let listener = listen(args.http).await?;
        serve(dashboard, listener, &args.pages, output).await?;
        Ok(Exit::Done)
    })
}

/// Binds the port of a dashboard.
pub(crate) async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

/// Serves a dashboard until it is cancelled.
pub(crate) async fn serve(
    mut dashboard: Dashboard,
    listener: TcpListener,
    args: &PageArgs,
    output: Output,
) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    for name in &args.host_names {
        dashboard = dashboard.host_name(name);
    }
    if args.allow_actions {
        dashboard = dashboard.allow_actions();
    }
    output.notice(format_args!("dashboard at http://{address}/"));
    if let Some(path) = &args.token_file {
        let token = fs::read_to_string(path);
        let token = token.with_context(|| format!("cannot read {}", path.display()))?;
        dashboard = dashboard.token(token.trim());
    } else if args.allow_actions || !address.ip().is_loopback() {
        let token = random_token()?;
        // Not a notice, because users cannot log in without it.
        output.say(format_args!("log in with the token {token}"));
        dashboard = dashboard.token(token);
    }
    if !address.ip().is_loopback() {
        output
            .notice("pages and token are sent over the network without encryption; put a proxy with TLS in front");
    }
    Ok(dashboard.serve(listener).await?)
}

/// Serves the pages and metrics of a server in this process, until it is cancelled. Pages read through a session, as any client does.
pub(crate) async fn beside(
    server: &Server,
    listener: TcpListener,
    args: &PageArgs,
    backups: Option<PathBuf>,
    output: Output,
) -> anyhow::Result<()> {
    let name = server.connect_string();
    if server.addresses().is_empty() && !name.starts_with("unix:") {
        anyhow::bail!(
            "the dashboard reads through a listener without TLS, and this server has none; use `bellwether dashboard` with --tls"
        );
    }
    let connected = bellwether::connect(&name).on_current_runtime().await;
    let client = connected.context("no session for the dashboard")?;
    let (words, metrics) = (server.monitor(), server.monitor());
    let member = Member::new(&name, move |word| ready(Ok(words.word(word))));
    let mut dashboard = Dashboard::new(&client)
        .title(name)
        .member(member)
        .metrics(move || metrics.metrics());
    if let Some(folder) = backups {
        let server = server.monitor();
        dashboard = dashboard.backup(move || {
            let (server, folder) = (server.clone(), folder.clone());
            async move {
                let written = backup::write(&server, &folder).await;
                written.map_err(|error| format!("{error:#}"))
            }
        });
    }
    serve(dashboard, listener, args, output).await
}

fn named(endpoints: Vec<Endpoint>) -> (String, Vec<Member>) {
    let names: Vec<_> = endpoints.iter().map(Endpoint::to_string).collect();
    let member = |endpoint: Endpoint| {
        Member::new(endpoint.to_string(), move |word| {
            four_letter_word(Sockets.dial(&endpoint), word)
        })
    };
    (
        names.join(", "),
        endpoints.into_iter().map(member).collect(),
    )
}

/// The local server, which is not started for this.
fn local(folder: Folder) -> Member {
    Member::new("local server", move |word| {
        let folder = folder.clone();
        let connecting = async move {
            let server = folder.connect().await.map_err(io::Error::other)?;
            server.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, "the local server does not run")
            })
        };
        four_letter_word(connecting, word)
    })
}

fn random_token() -> anyhow::Result<String> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
