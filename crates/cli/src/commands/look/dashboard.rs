//! `bellwether dashboard`: shows recipes and nodes in a browser.

use std::fs;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bellwether::zk::{Dial, Dialing, Endpoint, Stream, four_letter_word};
use bellwether_dashboard::{Dashboard, Member, TlsAccept, probes};
use bellwether_server::{Inside, PageTls, Server};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::net::TcpListener;

use crate::args::{DashboardArgs, PageArgs};
use crate::commands::server::backup;
use crate::connect::session::in_session;
use crate::connect::{Whereabouts, dial_for_words, whereabouts};
use crate::exit::Exit;
use crate::local::Folder;
use crate::output::Output;

pub(crate) fn run(args: DashboardArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.connect, output, async |client| {
        let (title, members) = match whereabouts(&args.connect)? {
            Whereabouts::Local(folder) => ("local server".to_owned(), vec![local(folder)]),
            Whereabouts::Named(endpoints) => {
                let dial = dial_for_words(&args.connect).await?;
                named(endpoints, &dial)
            }
        };
        let mut dashboard = Dashboard::new(client).title(title);
        for member in members {
            dashboard = dashboard.member(member);
        }
        let port = Port::bind(args.listen, None).await?;
        serve(dashboard, &port, &args.pages, output).await?;
        Ok(Exit::Done)
    })
}

/// The port of a dashboard.
pub(crate) struct Port {
    listener: std::net::TcpListener,
    tls: Option<TlsAccept>,
}

impl Port {
    pub(crate) async fn bind(address: SocketAddr, tls: Option<PageTls>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        let accept = |tls: PageTls| {
            TlsAccept::new(move |tcp| {
                let tls = tls.clone();
                async move { tls.accept(tcp).await }
            })
        };
        Ok(Self {
            listener: listener.into_std()?,
            tls: tls.map(accept),
        })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Another handle of the same port.
    fn listener(&self) -> io::Result<TcpListener> {
        TcpListener::from_std(self.listener.try_clone()?)
    }

    /// Answers that the server is alive, and not ready because of `why`, until it is dropped.
    pub(crate) async fn not_ready(&self, why: &'static str) {
        let answered = async { probes(self.listener()?, self.tls.clone(), why).await };
        if let Err(error) = answered.await {
            tracing::warn!(%error, "probes are not answered");
        }
        std::future::pending().await
    }
}

/// Serves a dashboard until it is cancelled.
pub(crate) async fn serve(
    mut dashboard: Dashboard,
    port: &Port,
    args: &PageArgs,
    output: Output,
) -> anyhow::Result<()> {
    let address = port.address()?;
    let mut page = format!("http://{address}/");
    if let Some(tls) = &port.tls {
        dashboard = dashboard.tls(tls.clone());
        // Certificates are for names more often than for addresses.
        page = match args.host_names.first() {
            Some(name) => format!("https://{name}:{}/", address.port()),
            None => format!("https://{address}/"),
        };
    }
    for name in &args.host_names {
        dashboard = dashboard.host_name(name);
    }
    if args.allow_actions {
        dashboard = dashboard.allow_actions();
    }
    if args.open {
        dashboard = dashboard.open_to_this_host();
    }
    output.notice(format_args!("dashboard at {page}"));
    if let Some(path) = &args.token_file {
        let token = fs::read_to_string(path);
        let token = token.with_context(|| format!("cannot read {}", path.display()))?;
        dashboard = dashboard.token(token.trim());
    } else if args.allow_actions || !args.open || !address.ip().is_loopback() {
        let token = random_token()?;
        // Not a notice, because users cannot log in without it.
        output.say(match address.ip().is_unspecified() {
            true => format!("log in with the token {token}"),
            false => format!("log in at {page}#token={token}"),
        });
        dashboard = dashboard.token(token);
    }
    if !address.ip().is_loopback() && port.tls.is_none() {
        output
            .notice("pages and token are sent over the network without encryption; use `serve --http-tls`, or put a proxy with TLS in front");
    }
    Ok(dashboard.serve(port.listener()?).await?)
}

/// Serves the pages and metrics of a server in this process, until it is cancelled. Pages read through a session, as any client does.
pub(crate) async fn beside(
    server: &Server,
    port: &Port,
    args: &PageArgs,
    backups: Option<PathBuf>,
    output: Output,
) -> anyhow::Result<()> {
    let mut name = server.connect_string();
    if name.is_empty() {
        let addresses = server.tls_addresses().iter();
        name = addresses
            .map(SocketAddr::to_string)
            .collect::<Vec<_>>()
            .join(",");
    }
    server
        .monitor()
        .note_open_dashboard(args.open && port.address()?.ip().is_loopback());
    let dial = InsideDial(server.inside());
    let connected = bellwether::connect(&name)
        .dial(dial)
        .on_current_runtime()
        .await;
    let client = connected.context("no session for the dashboard")?;
    let (words, metrics, writes) = (server.monitor(), server.monitor(), server.monitor());
    let member = Member::new(&name, move |word| ready(Ok(words.word(word))));
    let mut dashboard = Dashboard::new(&client)
        .title(name)
        .member(member)
        .metrics(move || metrics.metrics())
        .ready(move || {
            let writes = writes.clone();
            async move { writes.serves_writes().await.map_err(|why| why.to_string()) }
        });
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
    serve(dashboard, port, args, output).await
}

/// Connects a session to the server in this process, whatever its listeners ask of clients.
#[derive(Clone, Debug)]
struct InsideDial(Inside);

impl Dial for InsideDial {
    fn dial(&self, _: &Endpoint) -> Dialing {
        let inside = self.0.clone();
        Box::pin(async move {
            let stream: Box<dyn Stream> = Box::new(inside.connect().await?);
            Ok(stream)
        })
    }
}

fn named(endpoints: Vec<Endpoint>, dial: &Arc<dyn Dial>) -> (String, Vec<Member>) {
    let names: Vec<_> = endpoints.iter().map(Endpoint::to_string).collect();
    let member = |endpoint: Endpoint| {
        let dial = dial.clone();
        Member::new(endpoint.to_string(), move |word| {
            four_letter_word(dial.dial(&endpoint), word)
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
