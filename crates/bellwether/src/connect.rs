//! How a session is opened.

use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use bellwether_client as zk;

use crate::client::Client;
use crate::error::ConnectError;
use crate::heart::Engine;
use crate::path::NodePath;
use crate::sabotage::Sabotage;

/// Opens a session with the servers of a connect string: `host:port,host:port/chroot`, or `unix:/path/of/socket`.
///
/// Awaiting the result connects. The session thread of this process carries the session, so that a task which computes or
/// blocks cannot stop its heartbeat, and so that the futures of this crate can be awaited on any executor.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn run() -> Result<(), bellwether::ConnectError> {
/// let client = bellwether::connect("zk1,zk2,zk3/batch").session_timeout(Duration::from_secs(30)).await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent until this is awaited"]
pub fn connect(connect_string: impl Into<String>) -> Connect {
    let address = connect_string.into();
    Connect {
        options: zk::Client::connect(address.clone()),
        process: std::process::id(),
        address,
        #[cfg(feature = "sabotage")]
        sabotage: None,
    }
}

/// Options of a session to open; see [`connect`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until this is awaited"]
pub struct Connect {
    address: String,
    options: zk::Connect,
    process: u32,
    #[cfg(feature = "sabotage")]
    sabotage: Option<Sabotage>,
}

impl Connect {
    /// How long the servers keep the session, and its holds, after they last heard from it. The servers may answer
    /// with another value: [`Client::session_timeout`]. 15 seconds unless set.
    pub fn session_timeout(self, session_timeout: Duration) -> Self {
        self.with(|options| options.session_timeout(session_timeout))
    }

    /// How long to try before the session is there. As long as the session timeout unless set.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        self.with(|options| options.connect_timeout(connect_timeout))
    }

    /// Gives up when each server was tried once, instead of going on for the connect timeout.
    pub fn fail_fast(self) -> Self {
        self.with(zk::Connect::fail_fast)
    }

    /// The process that people are told to turn to, where it is another one than that of the session: a supervisor that
    /// takes signals on behalf of the work under a hold, for example. This process unless set.
    pub fn process(self, process: u32) -> Self {
        Self { process, ..self }
    }

    pub(crate) fn presented_process(&self) -> u32 {
        self.process
    }

    /// Proves an identity to the servers, on each new connection too: scheme `digest` with `user:password`, for example.
    pub fn auth(self, scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.with(|options| options.auth(scheme, secret))
    }

    /// Speaks TLS with the servers.
    #[cfg(feature = "tls")]
    pub fn tls(self, options: zk::TlsOptions) -> Self {
        self.with(|connect| connect.tls(options))
    }

    /// Proves to the servers, by SASL DIGEST-MD5, to be a user, on each new connection too.
    #[cfg(feature = "sasl")]
    pub fn sasl_digest_md5(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.with(|options| options.sasl_digest_md5(user, password))
    }

    /// Opens streams in another way than by TCP and Unix sockets.
    pub fn dial(self, dial: impl zk::Dial) -> Self {
        self.with(|options| options.dial(dial))
    }

    /// Runs the session on the tokio runtime of the caller instead of the session thread.
    ///
    /// That saves a change of thread a request. In exchange, a task that blocks the runtime also stops the heartbeat, and
    /// holds are lost; and the session ends with the runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn on_current_runtime(self) -> Self {
        self.with(zk::Connect::on_current_runtime)
    }

    /// Makes the recipes of this session wrong in one way, to show that a test would notice.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(self, sabotage: Sabotage) -> Self {
        Self {
            sabotage: Some(sabotage),
            ..self
        }
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn is_sabotaged(&self, what: Sabotage) -> bool {
        self.sabotage == Some(what)
    }

    #[cfg(not(feature = "sabotage"))]
    #[expect(clippy::unused_self, reason = "the feature has a use for it")]
    pub(crate) fn is_sabotaged(&self, _: Sabotage) -> bool {
        false
    }

    fn with(self, change: impl FnOnce(zk::Connect) -> zk::Connect) -> Self {
        Self {
            options: change(self.options),
            ..self
        }
    }

    pub(crate) async fn open(self) -> Result<Client, ConnectError> {
        let chroot = zk::Address::parse(&self.address)?.chroot;
        // Rooted at the servers' root, so that a missing chroot can be made.
        let zk = self.options.clone().await?.at_root();
        let engine = Engine::detect(&zk).await.map_err(ConnectError::Lost)?;
        let chroot = NodePath::parse(&chroot).ok();
        Ok(Client::start(zk, engine, chroot, self))
    }
}

impl IntoFuture for Connect {
    type Output = Result<Client, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let connect = connect("a").auth("digest", "user:secret");
        assert!(!format!("{connect:?}").contains("secret"));
    }
}
