//! The handle of a session.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bellwether_wire::op::Op;
use bellwether_wire::path;
use bytes::BytesMut;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{oneshot, watch};

use crate::clock::Moment;
use crate::core::events::event_queue;
use crate::core::life::Life;
use crate::core::requests::Answer;
use crate::core::watches::{Kind, Listener};
use crate::driver::shared::{SessionState, Shared};
use crate::error::PathError;
use crate::handle::own_session::OwnSession;
use crate::handle::reply::{Answering, Decode, Reply, ReplyContext, Request};
use crate::handle::watch::{Armed, Events};
use crate::options::session::{OVERLOAD_PAUSE, SessionKey};
use crate::process::Process;

/// An open session with the servers. Clones share it.
///
/// Every method sends its request when it is called; the returned [`Reply`] waits for the answer. Requests are
/// answered in the order in which they were made.
///
/// The session is closed when [`close`](Self::close) is called, or when the last clone is dropped. Watches and replies do not keep
/// it open.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
    /// The path that all paths of this handle are below; empty for the root.
    chroot: Arc<str>,
}

struct Handle {
    session: Arc<OwnSession>,
    runtime: Runtime,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.with(|session| session.close(Moment::now()));
    }
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, runtime: Runtime, chroot: String) -> Self {
        Self {
            handle: Arc::new(Handle {
                session: Arc::new(OwnSession::new(shared)),
                runtime,
            }),
            chroot: chroot.into(),
        }
    }

    /// The same session with paths below `path` of this handle. The node need not exist.
    ///
    /// # Errors
    ///
    /// The path is not allowed for a node.
    pub fn chroot(&self, path: &str) -> Result<Self, PathError> {
        path::check(path)?;
        let path = path.trim_end_matches('/');
        Ok(Self {
            handle: Arc::clone(&self.handle),
            chroot: format!("{}{path}", self.chroot).into(),
        })
    }

    /// The same session without a chroot.
    #[must_use]
    pub fn at_root(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            chroot: "".into(),
        }
    }

    /// The path that all paths of this handle are below, as the servers know it.
    pub fn root(&self) -> &str {
        match &*self.chroot {
            "" => "/",
            chroot => chroot,
        }
    }

    // --- the session --------------------------------------------------------------------------

    /// The id of the session, as the tools of the servers show it; 0 in a forked child.
    pub fn session_id(&self) -> i64 {
        self.session_key().id
    }

    /// The id and password of the session, to take it over elsewhere with [`Connect::session`](crate::Connect::session).
    pub fn session_key(&self) -> SessionKey {
        let identity = self.shared().look(|session| session.identity());
        let identity = identity.expect("a client is made when its session is open");
        SessionKey::new(identity.id, identity.password)
    }

    /// The session timeout: the one negotiated last, or the first one if that is shorter ([`Life::timeout`]). A reconnect may change it.
    pub fn session_timeout(&self) -> Duration {
        self.life().timeout
    }

    /// What answered requests prove about the life of the session.
    pub fn life(&self) -> Life {
        self.shared().look(|session| session.life())
    }

    /// The highest zxid that this session has seen.
    pub fn last_zxid(&self) -> i64 {
        self.shared().look(|session| session.last_zxid())
    }

    /// Whether the session can be used now.
    pub fn state(&self) -> SessionState {
        self.shared().state()
    }

    /// Whether [`close`](Self::close) was called or the session has ended: new requests are refused.
    pub fn is_closed(&self) -> bool {
        self.shared().look(|session| session.is_closed())
    }

    /// The state as it changes. A short change may be missed; [`connections`](Self::connections) counts.
    ///
    /// Copy the state out of what the receiver lends: the session stands still as long as a [`watch::Ref`] is kept.
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.shared().states()
    }

    /// How many connections the session has had: an unchanged number proves that none was lost meanwhile.
    pub fn connections(&self) -> u64 {
        self.shared().look(|session| session.connections())
    }

    /// How many requests were made through all handles of the session. Pings, credentials and watches that the client arms again by
    /// itself are not counted; a request that is sent again by its caller counts again.
    pub fn requests(&self) -> u64 {
        self.shared().look(|session| session.requests())
    }

    /// Resolves when the session is over.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the session has ended meanwhile.
    pub async fn ended(&self) {
        let mut states = self.states();
        // This handle shares ownership of the sender.
        let _ = states.wait_for(|state| state.is_ended()).await;
    }

    /// Sends pings so that the servers hear from the session at least `pings` times in each session timeout, however long that is. Six
    /// times by default, and never less often.
    pub fn set_pings_per_timeout(&self, pings: u32) {
        self.shared()
            .with(|session| session.set_pings_per_timeout(pings));
        self.shared().wake.notify_one();
    }

    /// Gives up a server that owes an answer and is silent for a quarter of the session timeout, instead of half of it, and connects to
    /// another one: for a session that something depends on. If the next server is as slow, it gets half of the timeout. An idle session
    /// notices the silence by its pings: see [`set_pings_per_timeout`](Self::set_pings_per_timeout).
    pub fn set_attentive(&self, is_attentive: bool) {
        self.shared()
            .with(|session| session.set_attentive(is_attentive));
    }

    /// The runtime that carries the session: the session thread, or that of the caller of
    /// [`on_current_runtime`](crate::Connect::on_current_runtime).
    pub fn runtime(&self) -> &Runtime {
        &self.handle.runtime
    }

    /// The process that opened the session. In a forked child of it the session has [ended](crate::SessionEnd::Forked).
    #[doc(hidden)]
    pub fn process(&self) -> Process {
        self.shared().process()
    }

    /// Ends the session now, even if clones, watches and replies exist, and waits until the servers have acknowledged it.
    ///
    /// Requests that were made before are still answered. Later ones fail with [`Error::SessionEnded`](crate::Error::SessionEnded). If no server can be
    /// reached, it returns when the session must have expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait.
    pub async fn close(&self) {
        self.shared().with(|session| session.close(Moment::now()));
        self.ended().await;
    }

    // --- requests -----------------------------------------------------------------------------

    /// Makes several requests that leave together, in one write.
    ///
    /// ```no_run
    /// # async fn run(client: bellwether_client::Client) -> Result<(), bellwether_client::Error> {
    /// use bellwether_client::CreateMode;
    ///
    /// let (created, listed) = client.batch(|client| {
    ///     let created = client.create("/line/n-", b"", CreateMode::EphemeralSequential);
    ///     (created, client.children("/line"))
    /// });
    /// let (created, children) = (created.await?, listed.await?);
    /// # Ok(()) }
    /// ```
    pub fn batch<T>(&self, requests: impl FnOnce(&Self) -> T) -> T {
        struct Open<'a>(&'a OwnSession);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.end_batch();
            }
        }
        self.shared().begin_batch();
        let _open = Open(self.shared());
        requests(self)
    }

    pub(crate) fn shared(&self) -> &Arc<OwnSession> {
        &self.handle.session
    }

    pub(crate) fn chroot_bytes(&self) -> usize {
        self.chroot.len()
    }

    /// The path as the servers know it.
    pub(crate) fn full_path(&self, path: &str) -> Result<String, PathError> {
        path::check(path)?;
        Ok(self.joined(path))
    }

    /// As [`full_path`](Self::full_path), for a sequential node.
    pub(crate) fn full_prefix(&self, path: &str) -> Result<String, PathError> {
        path::check(&format!("{path}0"))?;
        Ok(self.joined(path))
    }

    fn joined(&self, path: &str) -> String {
        match (self.chroot.is_empty(), path) {
            (true, path) => path.to_owned(),
            (false, "/") => self.chroot.to_string(),
            (false, path) => format!("{}{path}", self.chroot),
        }
    }

    pub(crate) fn send<T>(
        &self,
        op: Op,
        decode: Decode<T>,
        body: impl FnOnce(&mut BytesMut),
    ) -> Reply<T> {
        let request = self
            .shared()
            .with(|session| session.request(Moment::now(), op, None, body));
        let request = request.map(|(receiver, _)| receiver);
        Reply::of(self.answering(request), self.reply_context(), decode)
    }

    /// The answer to a request that was sent or refused.
    pub(crate) fn answering(&self, request: Request) -> Answering {
        match request {
            Err(error) if error.is_overload() => {
                Answering::later(self.patiently(ready(Err(error))))
            }
            request => Answering::of(request),
        }
    }

    /// Delays an answer that says that there are too many requests.
    pub(crate) fn patiently<F>(&self, answer: F) -> impl Future<Output = Answer> + use<F>
    where
        F: Future<Output = Answer>,
    {
        let runtime = self.runtime().clone();
        async move {
            let answer = answer.await;
            if matches!(answer, Err(error) if error.is_overload()) {
                pause(&runtime).await;
            }
            answer
        }
    }

    pub(crate) fn reply_context(&self) -> ReplyContext {
        ReplyContext {
            chroot_bytes: self.chroot_bytes(),
            process: Some(self.shared().process()),
            watch: None,
        }
    }

    /// As [`send`](Self::send), for a request that arms a watch at `path`.
    pub(crate) fn send_watched<T>(
        &self,
        op: Op,
        kind: Kind,
        path: String,
        decode: Decode<T>,
        body: impl FnOnce(&mut BytesMut),
    ) -> Reply<T> {
        let (listener, events) = match kind {
            Kind::Data | Kind::Child => {
                let (sender, receiver) = oneshot::channel();
                (Listener::OneShot(sender), Events::OneShot(receiver))
            }
            Kind::Persistent | Kind::Recursive => {
                let events_max = self.shared().look(|session| session.events_max());
                let (sender, receiver) = event_queue(events_max);
                (Listener::Stream(sender), Events::Stream(receiver))
            }
        };
        let request = self.shared().with(|session| {
            let watch = Some((kind, path.as_str(), listener));
            session.request(Moment::now(), op, watch, body)
        });
        match request {
            Err(error) => {
                let refused = self.answering(Err(error));
                Reply::of(refused, self.reply_context(), decode)
            }
            Ok((receiver, id)) => {
                let context = ReplyContext {
                    chroot_bytes: self.chroot_bytes(),
                    process: Some(self.shared().process()),
                    watch: Some(Armed {
                        shared: Arc::clone(self.shared()),
                        kind,
                        path,
                        chroot_bytes: self.chroot_bytes(),
                        id: id.unwrap_or_default(),
                        events: Some(events),
                    }),
                };
                Reply::new(Ok(receiver), context, decode)
            }
        }
    }

    /// Sends a request for the node at a path, unless the path is not allowed.
    pub(crate) fn send_at<T>(
        &self,
        path: &str,
        op: Op,
        decode: Decode<T>,
        body: impl FnOnce(&mut BytesMut, &str),
    ) -> Reply<T> {
        match self.full_path(path) {
            Ok(path) => self.send(op, decode, |out| body(out, &path)),
            Err(error) => Reply::failed(error.into(), decode),
        }
    }
}

/// A timer that can be awaited on any executor.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller is slowed down on purpose"
)]
fn pause(runtime: &Runtime) -> tokio::time::Sleep {
    let _entered = runtime.enter();
    tokio::time::sleep(OVERLOAD_PAUSE)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.shared().look(|session| session.identity());
        let id = identity.map_or(0, |identity| identity.id);
        f.debug_struct("Client")
            .field("session", &format_args!("{id:#x}"))
            .field("chroot", &self.chroot)
            .field("state", &self.state())
            .finish()
    }
}
