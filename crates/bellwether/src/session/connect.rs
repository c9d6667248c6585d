//! Connecting: the options of a client and of its sessions.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use bellwether_client as zk;

use crate::error::ConnectError;
use crate::node::access::Access;
use crate::node::path::NodePath;
use crate::node::who::Who;
use crate::session::client::Client;
use crate::session::liveness::ServerKind;
use crate::session::open_session::Session;

/// Creates a client for the servers in a connect string, and opens its first session: `host:port,host:port/chroot`, or
/// `unix:/path/of/socket`.
///
/// Awaiting the result connects. The session thread of this process carries the session, so that a task which computes or
/// blocks cannot stop its heartbeat, and so that the futures of this crate can be awaited on any executor.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn run() -> Result<(), bellwether::error::ConnectError> {
/// let client = bellwether::connect("zk1,zk2,zk3/batch").session_timeout(Duration::from_secs(30)).await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent until this is awaited"]
pub fn connect(connect_string: impl Into<String>) -> Connect {
    let address = connect_string.into();
    Connect {
        options: zk::Client::connect(address.clone()),
        identity: ClientIdentity::default(),
        access: Access::default(),
        address,
    }
}

/// Options of a client, for all of its sessions; see [`connect`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until this is awaited"]
pub struct Connect {
    address: String,
    options: zk::Connect,
    identity: ClientIdentity,
    access: Access,
}

/// What a client says of itself, where it is not what the process and the session would say.
#[derive(Clone, Debug, Default)]
struct ClientIdentity {
    process: Option<u32>,
    owner: Option<String>,
    command: Option<String>,
    message: Option<String>,
}

impl Connect {
    /// The session timeout: how long the servers keep the session, and its holds, after its last request. The servers may answer with
    /// another value: [`Client::session_timeout`]. 15 seconds unless set.
    pub fn session_timeout(self, session_timeout: Duration) -> Self {
        self.with(|options| options.session_timeout(session_timeout))
    }

    /// How long to try to open a session. The session timeout unless set.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        self.with(|options| options.connect_timeout(connect_timeout))
    }

    /// Gives up when each server was tried once, instead of trying until the connect timeout.
    pub fn fail_fast(self) -> Self {
        self.with(zk::Connect::fail_fast)
    }

    /// The process id that other users see as the holder, if it differs from the process of the session: for example a supervisor that
    /// takes signals on behalf of the work under a hold. This process unless set.
    pub fn process(self, process: u32) -> Self {
        self.identified(|identity| identity.process = Some(process))
    }

    /// The command that runs under the holds of this client, for people who look at them. A recipe may name another one.
    pub fn command(self, command: impl Into<String>) -> Self {
        self.identified(|identity| identity.command = Some(command.into()))
    }

    /// A message for people who look at the holds of this client. A recipe may have another one.
    pub fn message(self, message: impl Into<String>) -> Self {
        self.identified(|identity| identity.message = Some(message.into()))
    }

    /// The name under which a search for deadlocks counts the holds and waits of this client, also together with those of
    /// other clients of that name. The session unless set; a recipe may name another owner.
    pub fn owner(self, owner: impl Into<String>) -> Self {
        self.identified(|identity| identity.owner = Some(owner.into()))
    }

    fn identified(mut self, set: impl FnOnce(&mut ClientIdentity)) -> Self {
        set(&mut self.identity);
        self
    }

    /// What this client says of itself in the nodes of a session.
    pub(crate) fn who(&self, session: i64) -> Who {
        let mut who = Who::here(session);
        let identity = self.identity.clone();
        who.pid = identity.process.unwrap_or(who.pid);
        who.owner = identity.owner.unwrap_or(who.owner);
        who.command = identity.command;
        who.message = identity.message;
        who
    }

    /// Authenticates to the servers, on each new connection: for example scheme `digest` with `user:password`.
    pub fn auth(self, scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.with(|options| options.auth(scheme, secret))
    }

    /// The access list of all nodes that recipes of this client create, unless a recipe has another one: which clients may use its locks,
    /// queues and so on. All clients unless set. Directories that have to be created above a recipe stay open: create them first if they
    /// should not be.
    ///
    /// ```no_run
    /// # use bellwether::zk;
    /// # async fn run() -> Result<(), bellwether::error::ConnectError> {
    /// // Only clients with this credential get in.
    /// let client = bellwether::connect("zk1").auth("digest", "ops:secret").acl([zk::Acl::creator()]).await?;
    /// # Ok(()) }
    /// ```
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            access: Access::new(acl),
            ..self
        }
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Speaks TLS with the servers.
    #[cfg(feature = "tls")]
    pub fn tls(self, options: zk::TlsOptions) -> Self {
        self.with(|connect| connect.tls(options))
    }

    /// Authenticates to the servers as a user by SASL DIGEST-MD5, on each new connection.
    #[cfg(feature = "sasl")]
    pub fn sasl_digest_md5(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.with(|options| options.sasl_digest_md5(user, password))
    }

    /// Limits on the resources of each session. Recipes try again when there are too many requests.
    pub fn limits(self, limits: zk::Limits) -> Self {
        self.with(|options| options.limits(limits))
    }

    /// Opens streams in another way than by TCP and Unix sockets.
    pub fn dial(self, dial: impl zk::Dial) -> Self {
        self.with(|options| options.dial(dial))
    }

    /// Runs the session on the tokio runtime of the caller instead of the session thread.
    ///
    /// That saves a change of thread per request. In exchange, a task that blocks the runtime also stops the heartbeat, and holds are lost;
    /// and the session ends with the runtime, and with it all holds and the client.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn on_current_runtime(self) -> Self {
        self.with(zk::Connect::on_current_runtime)
    }

    /// The servers in the connect string, whatever their order.
    pub(crate) fn servers(&self) -> BTreeSet<String> {
        let address = zk::Address::parse(&self.address);
        let endpoints = address.map_or_else(|_| Vec::new(), |address| address.endpoints);
        endpoints.iter().map(ToString::to_string).collect()
    }

    fn with(self, change: impl FnOnce(zk::Connect) -> zk::Connect) -> Self {
        Self {
            options: change(self.options),
            ..self
        }
    }

    pub(crate) async fn open_session(self) -> Result<Session, ConnectError> {
        let chroot = zk::Address::parse(&self.address)?.chroot;
        // Rooted at the servers' root, so that a missing chroot can be made.
        let zk = self.options.clone().await?.at_root();
        let kind = ServerKind::detect(&zk).await.map_err(ConnectError::Lost)?;
        let chroot = NodePath::parse(&chroot).ok();
        Ok(Session::start(zk, kind, chroot, self))
    }
}

impl IntoFuture for Connect {
    type Output = Result<Client, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async {
            let session = self.clone().open_session().await?;
            Ok(Client::start(session, self))
        })
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
