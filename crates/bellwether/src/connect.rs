//! How a session is opened.

use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use zookeeper_client as zk;

use crate::client::Client;
use crate::clock::Moment;
use crate::error::ConnectError;
use crate::heart::Engine;
use crate::home::Home;
use crate::path::NodePath;
use crate::sabotage::Sabotage;

/// The session timeout that is asked for unless another is set.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Opens a session with the servers of a connect string: `host:port,host:port/chroot`.
///
/// Awaiting the result connects. The session lives on a thread of its own, so that a task which computes or blocks
/// cannot stop its heartbeat, and so that the futures of this crate can be awaited on any executor.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn run() -> Result<(), bellwether::ConnectError> {
/// let client = bellwether::connect("zk1,zk2,zk3/batch").session_timeout(Duration::from_secs(30)).await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent until this is awaited"]
pub fn connect(connect_string: impl Into<String>) -> Connect {
    Connect {
        address: connect_string.into(),
        session_timeout: SESSION_TIMEOUT,
        fail_fast: false,
        process: std::process::id(),
        auth: Vec::new(),
        home: None,
        #[cfg(feature = "sabotage")]
        sabotage: None,
    }
}

/// Options of a session to open; see [`connect`].
#[derive(Clone)]
#[must_use = "nothing is sent until this is awaited"]
pub struct Connect {
    address: String,
    session_timeout: Duration,
    fail_fast: bool,
    process: u32,
    auth: Vec<(String, Vec<u8>)>,
    home: Option<Home>,
    #[cfg(feature = "sabotage")]
    sabotage: Option<Sabotage>,
}

impl Connect {
    /// How long the servers keep the session, and its holds, after they last heard from it. The servers may answer
    /// with another value: [`Client::session_timeout`]. 15 seconds unless set.
    pub fn session_timeout(self, session_timeout: Duration) -> Self {
        Self {
            session_timeout,
            ..self
        }
    }

    /// Gives up when each server was tried once, instead of going on for the session timeout.
    pub fn fail_fast(self) -> Self {
        Self {
            fail_fast: true,
            ..self
        }
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
    pub fn auth(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.auth.push((scheme.into(), auth.into()));
        self
    }

    /// Runs the session on the tokio runtime of the caller instead of a thread of its own.
    ///
    /// That saves two changes of thread a request. In exchange, a task that blocks the runtime also stops the heartbeat,
    /// and holds are lost; and the session ends with the runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn on_current_runtime(self) -> Self {
        Self {
            home: Some(Home::caller()),
            ..self
        }
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

    pub(crate) async fn open(self) -> Result<Client, ConnectError> {
        let address = &self.address;
        let mut connector = zk::Client::connector().with_session_timeout(self.session_timeout);
        if self.fail_fast {
            connector = connector.with_fail_eagerly();
        }
        for (scheme, auth) in &self.auth {
            connector = connector.with_auth(scheme, auth);
        }
        let (servers, chroot) = split_chroot(address);
        let Ok(chroot) = chroot.map(NodePath::parse).transpose() else {
            return Err(ConnectError::BadAddress {
                address: address.clone(),
                source: zk::Error::BadArguments(&"the chroot is not a path"),
            });
        };
        let home = self.home.clone().unwrap_or_else(Home::own_thread);
        let servers = servers.to_owned();
        let sent = Moment::now();
        let opened = home.spawn(async move {
            let zk = connector.connect(&servers).await?;
            let engine = Engine::detect(&zk).await?;
            Ok((zk, engine))
        });
        match opened.await {
            Ok(Ok((zk, engine))) => Ok(Client::start(zk, engine, sent, chroot, home, self)),
            Ok(Err(source)) => Err(self.error(source)),
            Err(_) => Err(self.error(zk::Error::ClientClosed)),
        }
    }

    fn error(self, source: zk::Error) -> ConnectError {
        let address = self.address;
        match source {
            zk::Error::BadArguments(_) => ConnectError::BadAddress { address, source },
            zk::Error::NoHosts
            | zk::Error::Timeout
            | zk::Error::ConnectionLoss
            | zk::Error::Custom(_) => ConnectError::Unreachable { address, source },
            _ => ConnectError::Refused { address, source },
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

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the passwords.
        let schemes: Vec<_> = self.auth.iter().map(|(scheme, _)| scheme).collect();
        f.debug_struct("Connect")
            .field("address", &self.address)
            .field("session_timeout", &self.session_timeout)
            .field("fail_fast", &self.fail_fast)
            .field("auth", &schemes)
            .finish_non_exhaustive()
    }
}

/// Splits `host:port,tcp://host:port/chroot` before the chroot. A chroot of `/` is none.
fn split_chroot(address: &str) -> (&str, Option<&str>) {
    let hosts = address
        .rfind("://")
        .map_or(0, |scheme| scheme + "://".len());
    match address[hosts..].find('/') {
        Some(slash) => {
            let (servers, chroot) = address.split_at(hosts + slash);
            (servers, Some(chroot).filter(|&chroot| chroot != "/"))
        }
        None => (address, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chroot_is_split_from_the_servers() {
        assert_eq!(split_chroot("a:1,b"), ("a:1,b", None));
        assert_eq!(split_chroot("a:1,b/x/y"), ("a:1,b", Some("/x/y")));
        assert_eq!(split_chroot("a:1/"), ("a:1", None));
        assert_eq!(
            split_chroot("tcp://a:1,tcp://b/x"),
            ("tcp://a:1,tcp://b", Some("/x"))
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let connect = connect("a").auth("digest", "user:secret");
        assert!(!format!("{connect:?}").contains("secret"));
    }
}
