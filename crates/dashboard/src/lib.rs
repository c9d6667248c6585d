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
//! Dashboard::new(&client).serve(listener).await?;
//! # Ok(()) }
//! ```
//!
//! # Who may see and do what
//!
//! Pages show what the session of `client` may read. On a loopback address they need no login; on any other address they need the
//! [token](Dashboard::token), and [`Dashboard::serve`] refuses to start without one. [Actions](Dashboard::allow_actions) always need the
//! token. See `docs/dashboard.md`.

mod http;
pub mod json;
mod live;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bellwether::Client;
use tokio::net::TcpListener;

pub use live::Member;

/// Minimum length of a token, against guessing.
pub const TOKEN_CHARS_MIN: usize = 16;

/// What [`Dashboard::metrics`] takes.
pub(crate) type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What [`Dashboard::backup`] takes.
pub(crate) type WriteBackup =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync>;

/// Settings of a dashboard that is not served yet.
#[derive(Clone)]
pub struct Dashboard {
    client: Client,
    title: String,
    members: Vec<Member>,
    token: Option<String>,
    host_names: Vec<String>,
    allows_actions: bool,
    metrics: Option<Metrics>,
    backup: Option<WriteBackup>,
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
            metrics: None,
            backup: None,
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
            None if !address.ip().is_loopback() => {
                return refused("an address that other hosts can reach needs a token");
            }
            None if self.allows_actions => return refused("actions need a token"),
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
