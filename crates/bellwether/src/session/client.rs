//! The client, which outlives its sessions, and the options it is connected with.

use std::collections::BTreeSet;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use bellwether_client::process::{Native, Process};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use futures_util::stream::unfold;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::error::{ConnectError, Failure};
use crate::events::Events;
use crate::node::data::Who;
use crate::node::{Access, NodePath};
use crate::session::liveness::ServerKind;
use crate::session::runtime::SessionRuntime;
use crate::session::{Moment, Session, lock};

/// The pause between two attempts to open the next session: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A client of the servers. Clones share it.
///
/// It has one session at a time. When a session has ended, the client opens a new one by itself, with the same options, and keeps trying
/// while no server answers. Recipes use the current session: after a session expiry they work again as soon as there is a new session.
/// Guards, claims and places in line belong to the session in which they were acquired, and are lost with it.
///
/// The client is closed by [`close`](Self::close), or when the last clone, the last recipe and the last guard are gone.
///
/// It belongs to the process that made it. In a forked child it is closed, and so is everything made from it: nothing is held there, calls
/// fail with [`ConnectError::Forked`], and drops do nothing. The parent is not disturbed, and the child can [connect](crate::connect()).
#[derive(Clone)]
pub struct Client(Arc<Native<Sessions>>);

type Opening = BoxFuture<'static, Result<Session, ConnectError>>;

struct Sessions {
    options: Connect,
    runtime: SessionRuntime,
    /// The session that was opened last. Not a mutex: it would be locked for ever in a child that is forked while a thread reads it.
    current: RwLock<Session>,
    connection: watch::Sender<Connection>,
    /// The attempt to open the next session. It is given up when all its callers have dropped it.
    under_way: Mutex<Option<WeakShared<Opening>>>,
}

/// The state of the connection, without keeping the session open.
struct Connection {
    session: watch::Receiver<zk::SessionState>,
    /// The reason why no session follows.
    closed: Option<ConnectError>,
}

/// The connection state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientState {
    /// A server answers.
    Connected,
    /// There is no connection. The session is still open, and nothing is lost yet.
    Disconnected,
    /// The session has ended, and there is no new session yet. Everything that was held is lost. The client keeps trying.
    NoSession,
    /// The client is closed, for good: by [`Client::close`], with the runtime of its [session](Connect::on_current_runtime), or in a forked child.
    Closed,
}

impl Client {
    /// A client that starts with this session.
    pub(crate) fn start(session: Session, options: Connect) -> Self {
        let runtime = session.runtime().clone();
        let connection = Connection {
            session: session.zk().states(),
            closed: None,
        };
        let client = Self(Arc::new(Native::new(Sessions {
            options,
            runtime: runtime.clone(),
            current: RwLock::new(session),
            connection: watch::Sender::new(connection),
            under_way: Mutex::default(),
        })));
        runtime.spawn_detached(keep_open(Kept(Arc::downgrade(&client.0)), runtime.clone()));
        client
    }

    /// Returns whether the client can reach its servers, as of now: for readiness probes.
    #[must_use]
    pub fn state(&self) -> ClientState {
        match self.0.runtime.is_forked() {
            true => ClientState::Closed,
            false => self.0.connection.borrow().state(),
        }
    }

    /// The state as it changes, the current one first. A short change may pass unseen. It ends with [`ClientState::Closed`], and does
    /// not keep the client open.
    pub fn states(&self) -> Events<ClientState> {
        let states = States {
            connection: self.0.connection.subscribe(),
            process: self.0.process(),
            shown: None,
        };
        Events::from_stream(unfold(states, async |mut states: States| {
            let state = states.next().await?;
            Some((state, states))
        }))
    }

    /// Waits until there is a session: the present one, or the next one, which is opened now and shared by all callers. Recipes do this by
    /// themselves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the attempt, unless other callers wait for it too; the client keeps trying by itself.
    ///
    /// # Errors
    ///
    /// As [`connect`](crate::connect()), for all callers that waited for the same attempt; [`ConnectError::Closed`] if the client is
    /// closed, [`RuntimeGone`](ConnectError::RuntimeGone) if that is because its runtime was dropped, and [`Forked`](ConnectError::Forked)
    /// in a forked child.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.session().await.map(drop)
    }

    /// The session timeout that the servers granted to the current session.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.current().session_timeout()
    }

    /// Returns whether the servers are, or may be, an ensemble. In an ensemble, the answer of one server proves less, and holds are lost
    /// after shorter outages.
    #[must_use]
    pub fn is_ensemble(&self) -> bool {
        self.current().liveness().server_kind() == ServerKind::Ensemble
    }

    /// Returns the time for which the servers may be paused, or without a leader, before a hold of this session is lost: about three
    /// quarters of the session timeout on a single server, about half of it in an ensemble.
    #[must_use]
    pub fn outage_max(&self) -> Duration {
        self.current().liveness().outage_max()
    }

    /// The id of the current session, as the servers' own tools show it; the id of the last session if there is none.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.current().session_id().into()
    }

    /// The ZooKeeper client of the current session, rooted at the chroot, for requests that no recipe covers. It ends with that session.
    #[must_use]
    pub fn raw(&self) -> zk::Client {
        self.current().raw()
    }

    /// Closes the client now, even if clones, recipes and guards exist, and waits until the servers have acknowledged it. Everything that
    /// is held is lost.
    ///
    /// Nodes that were released or given up before are deleted first. When no server can be reached, it returns once the servers must have
    /// expired the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; the session may stay open then.
    pub async fn close(&self) {
        if self.0.runtime.is_forked() {
            return;
        }
        self.end_sessions(ConnectError::Closed);
        self.current().close().await;
    }

    /// Closes the client when nothing is held any more, or after `limit`, so that guards and claims can be released in order. From now on
    /// nothing new is acquired: calls that wait, for a lock or an item for example, fail at once with
    /// [`NoSession`](crate::ErrorKind::NoSession), and their places in line are given up. Returns whether everything was released in time,
    /// and the servers have confirmed the end of the session.
    ///
    /// It takes no longer than `limit`, and a second at most for that confirmation. Without it the session ends when the servers expire it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; nothing new is acquired all the same.
    pub async fn close_gently(&self, limit: Duration) -> bool {
        if self.0.runtime.is_forked() {
            return false;
        }
        self.end_sessions(ConnectError::Closed);
        let (session, runtime, began) = (self.current(), self.runtime(), Moment::now());
        let is_unused = tokio::select! {
            biased;
            () = session.liveness().unused() => true,
            // Everything is lost already. The timer may have gone with the runtime.
            () = session.ended() => false,
            () = runtime.sleep(limit) => false,
        };
        let (tell, closed) = oneshot::channel();
        // Goes on when this gives up.
        runtime.spawn_detached(async move {
            session.close().await;
            // Nobody listens after the limit.
            let _ = tell.send(());
        });
        let left = limit.saturating_sub(Moment::now() - began);
        let is_closed = runtime.timeout(left.max(CONFIRMATION_MAX), closed).await;
        is_unused && matches!(is_closed, Some(Ok(())))
    }

    /// Awaits something that a call waits for, unless the client is closed meanwhile.
    pub(crate) async fn unless_closed<T>(
        &self,
        wait: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut connection = self.0.connection.subscribe();
        tokio::select! {
            biased;
            closed = connection.wait_for(|connection| connection.closed.is_some()) => {
                let reason = closed.ok().and_then(|connection| connection.closed.clone());
                Err(reason.unwrap_or(ConnectError::Closed).into())
            }
            ended = wait => ended,
        }
    }

    /// Allows no further session and no further acquisition. The first reason counts.
    fn end_sessions(&self, reason: ConnectError) {
        self.0.connection.send_modify(|connection| {
            connection.closed.get_or_insert(reason);
        });
    }

    /// The current session, or a new one, which is opened once and shared by all callers. Cancel safe.
    pub(crate) async fn session(&self) -> Result<Session, ConnectError> {
        use zk::SessionState::Ended;
        loop {
            let session = self.current();
            match session.zk().state() {
                Ended(zk::SessionEnd::Forked) => return Err(ConnectError::Forked),
                Ended(zk::SessionEnd::RuntimeGone) => return Err(ConnectError::RuntimeGone),
                state => {
                    self.check_open()?;
                    match state.is_ended() {
                        true => self.attempt().await?,
                        false => return Ok(session),
                    }
                }
            };
        }
    }

    /// Does the same as [`session`](Self::session), but tries until there is a session or the client is closed. For streams and background
    /// tasks.
    pub(crate) async fn session_in_time(&self) -> Result<Session, ConnectError> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.session().await {
                Err(error) if error.is_final() => return Err(error),
                Err(_) => {
                    self.0.runtime.sleep(pause).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
                session => return session,
            }
        }
    }

    /// The access list of recipes that have none of their own.
    pub(crate) fn access(&self) -> &Access {
        self.0.options.access()
    }

    /// The session that was opened last, ended or not.
    pub(crate) fn current(&self) -> Session {
        self.read_current().clone()
    }

    fn read_current(&self) -> RwLockReadGuard<'_, Session> {
        let current = self.0.current.read();
        current.unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails with the reason if no further session is allowed.
    fn check_open(&self) -> Result<(), ConnectError> {
        let closed = &self.0.connection.borrow().closed;
        closed.clone().map_or(Ok(()), Err)
    }

    /// Opens a new session, or joins an attempt that is under way. A failure is a failure for all callers of the attempt.
    fn attempt(&self) -> Shared<Opening> {
        let mut under_way = lock(&self.0.under_way);
        let present = under_way.as_ref().and_then(WeakShared::upgrade);
        if let Some(attempt) = present.filter(|attempt| attempt.peek().is_none()) {
            return attempt;
        }
        let current = self.current();
        // An attempt stores its session before it ends, so a caller that comes later finds it here, and starts no second attempt.
        if !current.is_ended() {
            return std::future::ready(Ok(current)).boxed().shared();
        }
        let (client, options) = (self.clone(), self.0.options.clone());
        let attempt = async move {
            let session = options.open_session().await?;
            session.catch_up().await;
            client.go_on_with(session)
        };
        let attempt = attempt.boxed().shared();
        *under_way = attempt.downgrade();
        attempt
    }

    fn go_on_with(&self, session: Session) -> Result<Session, ConnectError> {
        let current = self.0.current.write();
        let mut current = current.unwrap_or_else(PoisonError::into_inner);
        // Closed while it was opened: it ends when it is dropped. Checked under the lock, because `close` ends the session that it finds there.
        self.check_open()?;
        *current = session.clone();
        drop(current);
        let id = session.session_id();
        log::emit(move || info!(session = id, "the client continues in a new session"));
        self.0
            .connection
            .send_modify(|connection| connection.session = session.zk().states());
        Ok(session)
    }

    /// Returns whether both are clients of the same servers, as far as their connect strings tell.
    pub(crate) fn has_servers_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.options.servers() == other.0.options.servers()
    }

    /// The runtime of its sessions.
    pub(crate) fn runtime(&self) -> &SessionRuntime {
        &self.0.runtime
    }

    /// The path as the servers know it, with the chroot in front.
    pub(crate) fn resolve(&self, path: &NodePath) -> NodePath {
        self.read_current().resolve(path)
    }
}

impl Connection {
    fn state(&self) -> ClientState {
        match *self.session.borrow() {
            _ if self.closed.is_some() => ClientState::Closed,
            zk::SessionState::Connected => ClientState::Connected,
            zk::SessionState::Disconnected => ClientState::Disconnected,
            _ => ClientState::NoSession,
        }
    }
}

/// Follows the state of a client.
struct States {
    connection: watch::Receiver<Connection>,
    process: Process,
    shown: Option<ClientState>,
}

impl States {
    async fn next(&mut self) -> Option<ClientState> {
        if self.shown == Some(ClientState::Closed) {
            return None;
        }
        if self.process.is_forked() {
            self.shown = Some(ClientState::Closed);
            return self.shown;
        }
        loop {
            let (state, mut session) = {
                let connection = self.connection.borrow_and_update();
                // Before the state is looked at, so that no change is missed.
                let mut session = connection.session.clone();
                session.mark_unchanged();
                (connection.state(), session)
            };
            if self.shown != Some(state) {
                self.shown = Some(state);
                return Some(state);
            }
            tokio::select! {
                biased;
                // An error says that the client is gone.
                changed = self.connection.changed() => changed.ok()?,
                changed = session.changed() => if changed.is_err() {
                    self.connection.changed().await.ok()?;
                },
            }
        }
    }
}

/// The time for which a gentle close waits for the servers to confirm it when its limit has passed.
const CONFIRMATION_MAX: Duration = Duration::from_secs(1);

/// A client that is kept open by a task. It is closed when the task is dropped with its runtime: no session follows.
struct Kept(Weak<Native<Sessions>>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(client) = self.0.upgrade().map(Client) {
            // Its session may be told of it later.
            client.end_sessions(ConnectError::RuntimeGone);
        }
    }
}

/// Opens the next session whenever one has ended, until the client is closed or gone.
async fn keep_open(kept: Kept, runtime: SessionRuntime) {
    let Kept(client) = &kept;
    let mut pause = PAUSE_MIN;
    loop {
        let Some(client_now) = client.upgrade() else {
            return;
        };
        let mut session = client_now.connection.borrow().session.clone();
        drop(client_now);
        // An error says that the session is gone too.
        let _ = session.wait_for(|state| state.is_ended()).await;
        let Some(client) = client.upgrade().map(Client) else {
            return;
        };
        match client.session().await {
            Ok(_) => pause = PAUSE_MIN,
            Err(error) if error.is_final() => return,
            Err(error) => {
                log::emit(move || warn!(%error, ?pause, "no session; will try again"));
                // Not kept meanwhile: the client may be dropped.
                drop(client);
                runtime.sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.current())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

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

/// The identity that a client gives, where it differs from that of the process and the session.
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

    /// Sets the time limit for opening a session. The session timeout unless set.
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

    /// Returns the identity of this client in the nodes of a session.
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

/// The id that the servers gave to a session. Printed in hexadecimal, as servers show it in their logs and in `cons`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(i64);

impl SessionId {
    /// The id as a number, as in the `ephemeral_owner` of a node.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    /// The session that a node ends with; `None` for the 0 of a node that stays.
    pub(crate) fn of_owner(ephemeral_owner: i64) -> Option<Self> {
        (ephemeral_owner != 0).then_some(Self(ephemeral_owner))
    }
}

impl From<i64> for SessionId {
    /// The session with this number.
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#x}")
    }
}

impl fmt::LowerHex for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
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

    #[test]
    fn session_id_is_printed_as_servers_print_it() {
        assert_eq!(SessionId::from(0x1000_04f2).to_string(), "0x100004f2");
        assert_eq!(SessionId::from(-1).to_string(), "0xffffffffffffffff");
    }

    #[test]
    fn owner_of_a_node_that_stays_is_no_session() {
        assert_eq!(SessionId::of_owner(0), None);
        assert_eq!(SessionId::of_owner(5), Some(SessionId::from(5)));
    }
}
