//! A session with the servers, and how one is opened.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use zookeeper_client as zk;

use crate::error::ConnectError;
use crate::janitor::Janitor;
use crate::path::NodePath;

/// The session timeout that is asked for unless another is set.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Opens a session with the servers of a connect string: `host:port,host:port/chroot`.
///
/// Awaiting the result connects. It wants a running tokio runtime, and the session lives on it: a task that blocks
/// the runtime's threads for long also stops the heartbeat.
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
    }
}

/// Options of a session to open; see [`connect`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until this is awaited"]
pub struct Connect {
    address: String,
    session_timeout: Duration,
    fail_fast: bool,
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

    async fn open(self) -> Result<Client, ConnectError> {
        let Self {
            address,
            session_timeout,
            fail_fast,
        } = self;
        let mut connector = zk::Client::connector().with_session_timeout(session_timeout);
        if fail_fast {
            connector = connector.with_fail_eagerly();
        }
        let (servers, chroot) = split_chroot(&address);
        let chroot = match chroot.map(NodePath::parse).transpose() {
            Ok(chroot) => chroot,
            Err(_) => {
                let source = zk::Error::BadArguments(&"the chroot is not a path");
                return Err(ConnectError::BadAddress { address, source });
            }
        };
        match connector.connect(servers).await {
            Ok(zk) => Ok(Client {
                janitor: Janitor::start(zk.clone()),
                zk,
                chroot,
            }),
            Err(source @ zk::Error::BadArguments(_)) => {
                Err(ConnectError::BadAddress { address, source })
            }
            Err(
                source @ (zk::Error::NoHosts
                | zk::Error::Timeout
                | zk::Error::ConnectionLoss
                | zk::Error::Custom(_)),
            ) => Err(ConnectError::Unreachable { address, source }),
            Err(source) => Err(ConnectError::Refused { address, source }),
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

/// An open session. Clones share it; it is closed when the last clone and the last guard are gone.
#[derive(Clone)]
pub struct Client {
    /// Rooted at the servers' root, so that a missing chroot can be made.
    zk: zk::Client,
    chroot: Option<NodePath>,
    janitor: Janitor,
}

impl Client {
    /// The session timeout that the servers granted.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.zk.session_timeout()
    }

    /// The id of the session, as the servers' own tools show it.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.zk.session_id().0
    }

    /// Drops this client and waits until the servers have acknowledged the end of the session.
    ///
    /// It waits for every other clone and guard to be dropped too. When no server can be reached, it returns once
    /// the session must have expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait.
    pub async fn close(self) {
        let mut states = self.zk.state_watcher();
        drop(self);
        let mut state = states.state();
        while !state.is_terminated() {
            state = states.changed().await;
        }
    }

    pub(crate) fn zk(&self) -> &zk::Client {
        &self.zk
    }

    pub(crate) fn janitor(&self) -> &Janitor {
        &self.janitor
    }

    /// The path as the servers know it, with the chroot in front.
    pub(crate) fn resolve(&self, path: &NodePath) -> NodePath {
        match &self.chroot {
            Some(chroot) => chroot.join(path),
            None => path.clone(),
        }
    }

    /// Makes a directory and what is missing above it, in one round trip: containers, which the servers remove when
    /// they have been emptied. The chroot is somebody's fixed place and made to stay.
    pub(crate) async fn make_directory(&self, dir: &NodePath) -> Result<(), zk::Error> {
        match self.create_lineage(dir, zk::CreateMode::Container).await {
            // Servers before 3.5 have no containers.
            Err(zk::Error::Unimplemented) => {
                self.create_lineage(dir, zk::CreateMode::Persistent).await
            }
            result => result,
        }
    }

    async fn create_lineage(&self, dir: &NodePath, mode: zk::CreateMode) -> Result<(), zk::Error> {
        let acls = zk::Acls::anyone_all();
        let kept = self
            .chroot
            .as_ref()
            .map_or(0, |chroot| chroot.as_str().len());
        let mut creates = Vec::new();
        for path in dir.lineage() {
            let mode = if path.len() <= kept {
                zk::CreateMode::Persistent
            } else {
                mode
            };
            // Requests leave when their futures are made, so these travel together.
            creates.push(self.zk.create(path, b"", &mode.with_acls(acls)));
        }
        let mut last = Ok(());
        for created in creates {
            last = match created.await {
                Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
                Err(error) => Err(error),
            };
        }
        // Only the last one counts: above it, nodes may exist where this client may not create any.
        last
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.zk.session_id())
            .field("chroot", &self.chroot)
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
}
