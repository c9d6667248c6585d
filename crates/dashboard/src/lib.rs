//! A live web dashboard for a ZooKeeper server: shows locks, elections, queues and nodes.
//!
//! It works with any ZooKeeper server, through the [`bellwether`] library and the four-letter words, and sends requests only while a page
//! is open. Pages are HTML, CSS and JavaScript inside the binary; nothing is loaded from elsewhere.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use bellwether_dashboard::Dashboard;
//! use tokio::net::TcpListener;
//!
//! let client = bellwether::connect("127.0.0.1:2181").await?;
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! Dashboard::new(&client).token("correct horse battery staple").serve(listener).await?;
//! # Ok(()) }
//! ```
//!
//! # Who may see and do what
//!
//! Pages show what the session of `client` may read. Users log in with the [token](Dashboard::token): a connection from a loopback address
//! may be that of a proxy. [`Dashboard::open_to_this_host`] lets callers on this host read without it. [Actions](Dashboard::allow_actions)
//! always need it. Metrics need it only from elsewhere. See `docs/dashboard.md`.

mod http;
pub mod json;
mod live;
mod tls;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bellwether::Client;
use tokio::net::TcpListener;

pub use http::probes;
pub use live::Member;
pub use tls::TlsAccept;

/// Minimum length of a token, against guessing.
pub const TOKEN_CHARS_MIN: usize = 16;

/// What [`Dashboard::metrics`] takes.
pub(crate) type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What [`Dashboard::backup`] takes.
pub(crate) type WriteBackup =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync>;

/// What [`Dashboard::ready`] takes.
pub(crate) type Ready =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// Settings of a dashboard that is not served yet.
#[derive(Clone)]
pub struct Dashboard {
    client: Client,
    title: String,
    members: Vec<Member>,
    token: Option<String>,
    host_names: Vec<String>,
    allows_actions: bool,
    is_open_here: bool,
    metrics: Option<Metrics>,
    backup: Option<WriteBackup>,
    ready: Option<Ready>,
    tls: Option<TlsAccept>,
}

impl Dashboard {
    /// A dashboard of everything that the session of `client` may read.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            title: String::new(),
            members: Vec::new(),
            token: None,
            host_names: Vec::new(),
            allows_actions: false,
            is_open_here: false,
            metrics: None,
            backup: None,
            ready: None,
            tls: None,
        }
    }

    /// Name of the servers in the page header.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Adds a server whose role and metrics are shown.
    #[must_use]
    pub fn member(mut self, member: Member) -> Self {
        self.members.push(member);
        self
    }

    /// Secret that users log in with. It must have at least [`TOKEN_CHARS_MIN`] characters.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Host name by which users reach the dashboard, besides addresses and `localhost`. Requests for other names are refused, because a
    /// page of another site could make such a name point here (DNS rebinding).
    #[must_use]
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.host_names.push(name.into());
        self
    }

    /// Lets logged-in users revoke and break holds, retry dead letters and clear crash marks. Each action is logged.
    #[must_use]
    pub fn allow_actions(mut self) -> Self {
        self.allows_actions = true;
        self
    }

    /// Lets callers on this host read without the token, if the listener is on a loopback address: connections from loopback, without a
    /// header of a proxy. A proxy on this host that adds no header makes the dashboard readable for everybody who reaches the proxy.
    #[must_use]
    pub fn open_to_this_host(mut self) -> Self {
        self.is_open_here = true;
        self
    }

    /// Content of `/metrics`, in the Prometheus text format.
    #[must_use]
    pub fn metrics(mut self, metrics: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(metrics));
        self
    }

    /// Writes a backup on a POST to `/api/backup` of a user who may [act](Self::allow_actions). It returns what it has written, or why it
    /// could not.
    #[must_use]
    pub fn backup<F>(mut self, backup: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.backup = Some(Arc::new(move || Box::pin(backup())));
        self
    }

    /// Decides `/readyz`: resolves when the server carries out writes, or says why it does not. `/healthz` and `/readyz` need no token. By
    /// default the dashboard is ready while it has a session.
    #[must_use]
    pub fn ready<F>(mut self, ready: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.ready = Some(Arc::new(move || Box::pin(ready())));
        self
    }

    /// Speaks TLS on all connections. A request without TLS is refused with an explanation.
    #[must_use]
    pub fn tls(mut self, tls: TlsAccept) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves on a listener, for ever.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the dashboard and closes the connections of its pages.
    ///
    /// # Errors
    ///
    /// Does not start without a token where one is needed, or with a token that is too short.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        let refused = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        match &self.token {
            None if self.allows_actions => return refused("actions need a token"),
            None if !(self.is_open_here && address.ip().is_loopback()) => {
                return refused("a dashboard that is not open to this host alone needs a token");
            }
            Some(token) if token.len() < TOKEN_CHARS_MIN => {
                return refused("the token is shorter than 16 characters");
            }
            _ => {}
        }
        let live = live::Live::new(self.client.clone(), self.members.clone());
        tokio::select! {
            served = http::serve(listener, self, live.clone()) => served,
            () = live::observe(live) => Ok(()),
        }
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("client", &self.client)
            .field("members", &self.members)
            .field("allows_actions", &self.allows_actions)
            .finish_non_exhaustive()
    }
}
