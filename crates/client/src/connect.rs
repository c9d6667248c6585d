//! How a session is opened.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::core::session::{Identity, Session};
use crate::driver::shared::Shared;
use crate::driver::stream::{Dial, Sockets};
#[cfg(feature = "tls")]
use crate::driver::tls::TlsLayer;
use crate::driver::{Driver, Opening};
use crate::environment;
use crate::error::{ConnectError, SessionEnd};
use crate::handle::client::Client;
use crate::options::address::Address;
use crate::options::session::{Credential, Limits, SessionKey};
#[cfg(feature = "tls")]
use crate::options::tls::TlsOptions;
use crate::process::Process;
#[cfg(feature = "sasl")]
use crate::sasl::DigestMd5;
use crate::session_thread::session_thread;

/// The default session timeout.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

impl Client {
    /// Opens a session with the servers of a connect string: `host:port,host:port/chroot`, or `unix:/path/of/socket`.
    ///
    /// Awaiting the result connects.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use bellwether_client::Client;
    ///
    /// let client = Client::connect("zk1,zk2,zk3/batch").session_timeout(Duration::from_secs(30)).await?;
    /// let (data, stat) = client.get("/settings").await?;
    /// # Ok(()) }
    /// ```
    pub fn connect(connect_string: impl Into<String>) -> Connect {
        Connect::new(connect_string.into())
    }
}

/// Options of a session to open; see [`Client::connect`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until this is awaited"]
pub struct Connect {
    address: String,
    session_timeout: Duration,
    connect_timeout: Option<Duration>,
    fail_fast: bool,
    session: Option<SessionKey>,
    credentials: Vec<Credential>,
    allow_read_only: bool,
    #[cfg(feature = "sasl")]
    sasl: Option<DigestMd5>,
    limits: Limits,
    dial: Arc<dyn Dial>,
    #[cfg(feature = "tls")]
    tls: Option<TlsOptions>,
    /// With the process that it belongs to.
    runtime: Option<(Runtime, Process)>,
}

impl Connect {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            session_timeout: SESSION_TIMEOUT,
            connect_timeout: None,
            fail_fast: false,
            session: None,
            credentials: Vec::new(),
            allow_read_only: false,
            #[cfg(feature = "sasl")]
            sasl: None,
            limits: Limits::default(),
            dial: Arc::new(Sockets),
            #[cfg(feature = "tls")]
            tls: None,
            runtime: None,
        }
    }

    /// How long the servers keep the session after they last heard from it. They may grant another value:
    /// [`Client::session_timeout`]. 15 seconds by default.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long to try to open the session. By default, as long as the session timeout.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Gives up after one attempt at each server.
    pub fn fail_fast(mut self) -> Self {
        self.fail_fast = true;
        self
    }

    /// Takes over a session by its id and password. The previous client of the session loses its connection.
    pub fn session(mut self, session: SessionKey) -> Self {
        self.session = Some(session);
        self
    }

    /// Authenticates on each connection: scheme `digest` with `user:password`, for example.
    pub fn auth(mut self, scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.credentials.push(Credential::new(scheme, secret));
        self
    }

    /// Authenticates on each connection by SASL DIGEST-MD5, before anything else is sent. The servers see the user as
    /// `sasl:USER`; the password is not sent.
    ///
    /// Servers that refuse the user or are not configured for SASL end the session with [`SessionEnd::AuthFailed`], or with
    /// [`ConnectError::AuthFailed`] before there is one. So does a server that does not prove that it knows the
    /// password.
    ///
    /// DIGEST-MD5 encrypts nothing, and an eavesdropper can guess a weak password offline. On a shared network, use
    /// it over TLS.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use bellwether_client::Client;
    ///
    /// let password = std::fs::read_to_string("/run/secrets/zookeeper")?;
    /// let client = Client::connect("zk1").sasl_digest_md5("alice", password.trim_end()).await?;
    /// assert!(client.who_am_i().await?.contains(&("sasl".to_owned(), "alice".to_owned())));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "sasl")]
    pub fn sasl_digest_md5(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sasl = Some(DigestMd5::new(user.into(), password.into()));
        self
    }

    /// Uses TLS, over streams of any kind.
    ///
    /// A file that cannot be read or used is [`ConnectError::Tls`], before anything is sent. Files are read for each
    /// connection, so a renewed certificate is used from the next connection on.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Accepts a server of an ensemble that has lost its quorum and answers reads only.
    pub fn allow_read_only(mut self) -> Self {
        self.allow_read_only = true;
        self
    }

    /// Limits on the resources of the session.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens streams with `dial` instead of TCP and Unix sockets.
    pub fn dial(mut self, dial: impl Dial) -> Self {
        self.dial = Arc::new(dial);
        self
    }

    /// Runs the session on the tokio runtime of the caller instead of the session thread.
    ///
    /// That saves a thread switch per request. In exchange, a task that blocks the runtime also stops the heartbeat, and the
    /// session ends with the runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn on_current_runtime(mut self) -> Self {
        self.runtime = Some((Runtime::current(), Process::current()));
        self
    }

    async fn open(self) -> Result<Client, ConnectError> {
        let Address { endpoints, chroot } = Address::parse(&self.address)?;
        let limit = self.connect_timeout.unwrap_or(self.session_timeout);
        let identity = self
            .session
            .map(|SessionKey { id, password }| Identity { id, password });
        let runtime = match self.runtime {
            Some((_, process)) if process.is_forked() => return Err(ConnectError::Forked),
            Some((runtime, _)) => runtime,
            None => session_thread(),
        };
        #[cfg(feature = "tls")]
        let tls = match self.tls {
            Some(options) => Some(TlsLayer::new(options, &runtime).await?),
            None => None,
        };
        let reply_bytes_max = self.limits.reply_bytes_max;
        let session = Session::new(
            Moment::now(),
            self.session_timeout,
            identity,
            self.credentials,
            self.limits,
        );
        let shared = Arc::new(Shared::new(session));
        let driver = Driver {
            shared: Arc::clone(&shared),
            dial: self.dial,
            #[cfg(feature = "tls")]
            tls,
            endpoints,
            allow_read_only: self.allow_read_only,
            #[cfg(feature = "sasl")]
            sasl: self.sasl,
            reply_bytes_max,
        };
        let (report, reported) = oneshot::channel();
        let opening = Opening {
            report,
            limit,
            fail_fast: self.fail_fast,
        };
        // From here on, dropping the future closes the session.
        let client = Client::new(Arc::clone(&shared), runtime.clone(), chroot);
        runtime.spawn(environment::task(driver.run(opening)));
        match reported.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            // The runtime was shut down.
            Err(_) => return Err(ConnectError::RuntimeGone),
        }
        // Credentials are refused after the handshake.
        client.confirm().await
    }
}

impl Client {
    /// Waits for the first answer after the handshake, if credentials were sent with it.
    async fn confirm(self) -> Result<Self, ConnectError> {
        if self.shared().look(|session| session.has_credentials()) {
            // Any read will do: it shows that the session survives its credentials.
            let _ = self.at_root().exists("/").await;
        }
        match self.shared().look(|session| session.end()) {
            Some(end @ SessionEnd::AuthFailed) => Err(ConnectError::AuthFailed {
                reason: end.to_string(),
            }),
            _ => Ok(self),
        }
    }
}

impl IntoFuture for Connect {
    type Output = Result<Client, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}
