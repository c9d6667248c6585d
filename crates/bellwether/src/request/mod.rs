//! Requests that survive lost replies, lagging followers, missed events and ended sessions: a node that recipes use across sessions, and
//! streams that follow it.

pub(crate) mod receipts;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bellwether_client as zk;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::{StreamExt, unfold};
use tokio::sync::watch;

use crate::error::{ConnectError, Error, ErrorKind, Failure};
use crate::events::Events;
use crate::node::{Access, NodePath, PathError, REQUEST_BYTES_MAX, WRITE_OVERHEAD_BYTES};
use crate::request::receipts::{OnceError, RECEIPT, RECEIPT_BYTES, Receipts, Written};
use crate::session::client::Client;
use crate::session::retry::{NodeEvent, read_linearizable};
use crate::session::telemetry;
use crate::session::{Session, lock};

/// The place where a recipe keeps its state. Clones share the session and its receipts.
#[derive(Clone, Debug)]
pub(crate) struct PersistentNode {
    path: String,
    access: Access,
    /// True if the node is in a directory of the same recipe, which has the same access list. Else the directory is above the recipe, and
    /// open.
    is_inner: bool,
    client: Client,
    last: Arc<Mutex<Option<OpenNode>>>,
}

/// A node, seen through one session.
#[derive(Clone, Debug)]
pub(crate) struct OpenNode {
    pub(crate) session: Session,
    pub(crate) path: NodePath,
    receipts: Receipts,
}

/// The load of a request to a node and its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) writes: usize,
    /// The size of their data, and the names of children.
    pub(crate) bytes: usize,
}

impl From<usize> for Load {
    /// Converts a number of bytes into one write.
    fn from(bytes: usize) -> Self {
        Self { writes: 1, bytes }
    }
}

/// The reason why writes were not made.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// The server refused one of them, and made none.
    Refused(zk::Error),
    Failed(Failure),
}

impl PersistentNode {
    pub(crate) fn new(client: &Client, path: String) -> Self {
        Self {
            path,
            access: client.access().clone(),
            is_inner: false,
            client: client.clone(),
            last: Arc::default(),
        }
    }

    pub(crate) fn with_access(self, access: Access) -> Self {
        Self {
            access,
            last: Arc::default(),
            ..self
        }
    }

    /// A child.
    pub(crate) fn beneath(&self, name: &str) -> Self {
        let path = format!("{}/{name}", self.path);
        let mut child = Self::new(&self.client, path).with_access(self.access.clone());
        child.is_inner = true;
        child
    }

    /// The path as it was given.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Refuses a name that is no valid child, or is reserved.
    pub(crate) fn check_child(&self, name: &str) -> Result<(), Failure> {
        let source = match NodePath::parse(&format!("/{name}")) {
            Ok(_) if !name.starts_with(RECEIPT) && !name.contains('/') => return Ok(()),
            Ok(_) => PathError::Reserved,
            Err(source) => source,
        };
        Err(Failure::elsewhere(
            format!("{}/{name}", self.path),
            ErrorKind::BadPath(source),
        ))
    }

    /// The node through the current session.
    pub(crate) async fn open(&self) -> Result<OpenNode, Failure> {
        if self.is_forked() {
            return Err(self.failed(ConnectError::Forked));
        }
        let last = self.last().clone();
        if let Some(opened) = last.filter(|opened| !opened.session.is_ended()) {
            return Ok(opened);
        }
        let node = self.client.node(&self.path);
        let node = node.map_err(|failure| self.failed(failure))?;
        let session = self.client.session().await;
        let session = session.map_err(|error| self.failed(error))?;
        let receipts = Receipts::new(&session, node.directory(), self.access.clone());
        let opened = OpenNode {
            session,
            path: node,
            receipts,
        };
        *self.last() = Some(opened.clone());
        Ok(opened)
    }

    /// Does the same as [`open`](Self::open), but waits until a session can be opened.
    pub(crate) async fn open_in_time(&self) -> Result<OpenNode, Failure> {
        loop {
            match self.open().await {
                Err(Failure {
                    kind: ErrorKind::NoSession(_),
                    ..
                }) => {
                    let session = self.client.session_in_time().await;
                    session.map_err(|error| self.failed(error))?;
                }
                opened => return opened,
            }
        }
    }

    /// Returns whether this is a forked child, where no lock may be tried: a thread of the parent may have had it.
    pub(crate) fn is_forked(&self) -> bool {
        self.client.runtime().is_forked()
    }

    /// Returns whether a request that is idempotent may be sent again after this error: when its answer was lost, or its session has ended
    /// and another may follow.
    pub(crate) async fn again(&self, opened: &OpenNode, error: zk::Error) -> Result<(), Failure> {
        match error {
            error if error.is_transient() => {}
            zk::Error::SessionEnded(_) => {
                // The request may learn of it before the session's other tasks.
                let limit = opened.session.session_timeout();
                let ended = opened.session.ended();
                opened.session.runtime().timeout(limit, ended).await;
            }
            error => return Err(self.failed(error)),
        }
        telemetry::retried();
        Ok(())
    }

    /// The data of the node; `None` if it is missing.
    pub(crate) async fn read(&self) -> Result<Option<(Bytes, zk::Stat)>, Failure> {
        self.ask(|opened| opened.session.zk().get(opened.path.as_str()))
            .await
    }

    /// Does the same as [`read`](Self::read), but the server does not lag: it shows every write that was acknowledged before.
    pub(crate) async fn read_latest(&self) -> Result<Option<(Bytes, zk::Stat)>, Failure> {
        self.ask(|opened| {
            let OpenNode {
                session,
                path: node,
                ..
            } = opened.clone();
            async move {
                let node = node.as_str();
                read_linearizable(session.zk(), node, || session.zk().get(node)).await
            }
        })
        .await
    }

    /// Sends a request that is idempotent, most often a read, until it is answered, through one session after the other. `None` if a
    /// node is missing.
    pub(crate) async fn ask<T, F>(
        &self,
        request: impl Fn(&OpenNode) -> F,
    ) -> Result<Option<T>, Failure>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        self.ask_through(|| self.open(), request).await
    }

    /// Does the same as [`ask`](Self::ask), but waits until a session can be opened.
    pub(crate) async fn ask_in_time<T, F>(
        &self,
        request: impl Fn(&OpenNode) -> F,
    ) -> Result<Option<T>, Failure>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        self.ask_through(|| self.open_in_time(), request).await
    }

    async fn ask_through<T, V, F>(
        &self,
        open: impl Fn() -> V,
        request: impl Fn(&OpenNode) -> F,
    ) -> Result<Option<T>, Failure>
    where
        V: Future<Output = Result<OpenNode, Failure>>,
        F: Future<Output = Result<T, zk::Error>>,
    {
        loop {
            let opened = open().await?;
            if let Some(answer) = self.answer(&opened, request(&opened)).await? {
                return Ok(answer);
            }
        }
    }

    /// `None` if there is no answer.
    async fn answer<T>(
        &self,
        opened: &OpenNode,
        request: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<Option<Option<T>>, Failure> {
        match request.await {
            Ok(answer) => Ok(Some(Some(answer))),
            Err(zk::Error::NO_NODE) => Ok(Some(None)),
            Err(error) => self.again(opened, error).await.map(|()| None),
        }
    }

    /// Makes writes exactly once, all or nothing, and the directory of the node if it is missing.
    ///
    /// Dropped before it returns, they may have been made or not.
    pub(crate) async fn once(
        &self,
        load: impl Into<Load>,
        fill: impl Fn(&mut zk::Multi<'_>, &NodePath),
    ) -> Result<Written, NotWritten> {
        let load = load.into();
        loop {
            let opened = self.open().await.map_err(NotWritten::Failed)?;
            let bytes_max = self.bytes_max(&opened, load.writes);
            if load.bytes > bytes_max {
                let bytes = load.bytes;
                let kind = ErrorKind::TooLarge { bytes, bytes_max };
                return Err(NotWritten::Failed(self.failed(kind)));
            }
            let written = self.write(&opened, |writer| fill(writer, &opened.path));
            match written.await? {
                Ok(written) => return Ok(written),
                // Nothing was sent.
                Err(OnceError::SessionEnded) => {}
                Err(OnceError::Refused(zk::MultiError::Refused { index, code })) if index > 0 => {
                    return Err(NotWritten::Refused(zk::Error::Refused(code)));
                }
                Err(error) => return Err(NotWritten::Failed(self.failed(error))),
            }
        }
    }

    /// Makes writes through one session, and the directory of the node if it is missing.
    async fn write(
        &self,
        opened: &OpenNode,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<Result<Written, OnceError>, NotWritten> {
        let mut operation = match opened.receipts.operation() {
            Ok(operation) => operation,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            match operation.send(&fill).await {
                // The receipt comes first, so its directory is missing.
                Err(OnceError::Refused(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                })) => self.make_directory(opened).await?,
                written => return Ok(written),
            }
        }
    }

    /// Returns the number of bytes of data and names that fit into one request with `writes` writes to the node and its children, and a
    /// receipt.
    pub(crate) fn bytes_max(&self, opened: &OpenNode, writes: usize) -> usize {
        let path_and_access = opened.path.as_str().len() + self.access.bytes();
        let each = path_and_access + WRITE_OVERHEAD_BYTES;
        let receipt = path_and_access + RECEIPT_BYTES;
        REQUEST_BYTES_MAX.saturating_sub(each.saturating_mul(writes) + receipt)
    }

    async fn make_directory(&self, opened: &OpenNode) -> Result<(), NotWritten> {
        // The root is always there.
        let Some(dir) = opened.path.parent() else {
            return Err(NotWritten::Failed(self.failed(zk::Error::NO_NODE)));
        };
        let open = Access::default();
        let access = match self.is_inner {
            true => &self.access,
            false => &open,
        };
        match opened.session.make_directory(&dir, access).await {
            // The next try finds what is missing.
            Ok(()) | Err(zk::Error::NO_NODE) => Ok(()),
            Err(error) => {
                let again = self.again(opened, error).await;
                again.map_err(NotWritten::Failed)
            }
        }
    }

    /// Makes the node a directory, if it is missing.
    pub(crate) async fn make_node(&self, opened: &OpenNode) -> Result<(), zk::Error> {
        let (session, node) = (&opened.session, &opened.path);
        match self.is_inner {
            true => session.make_inner_directory(node, &self.access).await,
            false => session.make_directory(node, &self.access).await,
        }
    }

    /// A failure of a call that is about this node, or about the recipe that keeps it.
    pub(crate) fn failed(&self, failure: impl Into<Failure>) -> Failure {
        let failure = failure.into();
        match self.is_inner && failure.path.is_none() {
            true => Failure::elsewhere(&self.path, failure.kind),
            false => failure,
        }
    }

    pub(crate) fn unreadable(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Failure {
        self.failed(ErrorKind::Unreadable(source.into().into()))
    }

    /// The failure of a call whose writes were not made, in no way that it expects.
    pub(crate) fn not_written(&self, error: NotWritten) -> Failure {
        match error {
            NotWritten::Refused(error) => self.failed(error),
            NotWritten::Failed(failure) => failure,
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<OpenNode>> {
        lock(&self.last)
    }
}

/// Sets the data of a node if it is at this version.
///
/// Versions are counted in 32 bits, and wrap. Version −1 means *any* in a request, so in that case the check follows the write: only a node
/// that was at −1 is at 0 then; otherwise the multi fails.
pub(crate) fn set_at(writer: &mut zk::Multi<'_>, path: &str, data: &[u8], version: i32) {
    writer.set(path, data, Some(version));
    if version == -1 {
        writer.check(path, Some(0));
    }
}

/// An item of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen<T> {
    /// The current value. Values that changed quickly may be skipped, but never the last one.
    Value(T),
    /// There is no value now.
    Absent,
    /// The session has ended, and a new session has followed. If the data changed meanwhile, the next item shows it.
    Renewed,
}

/// A stream of a value: the current state first, then each change.
///
/// It continues over lost connections and session expiry, which it reports with [`Seen::Renewed`], and never goes back to older data. It
/// ends only after an error that no retry would change: [`ErrorKind::BadPath`], [`ErrorKind::Refused`], [`ErrorKind::TooLarge`] if there
/// are more nodes than can be watched, and [`ErrorKind::NoSession`] if the client is closed. Nothing is sent until it is polled.
pub struct Watch<T> {
    stream: Events<Result<Seen<T>, Error>>,
    freshness: Arc<Freshness>,
}

impl<T> Watch<T> {
    pub(crate) fn new(
        name: &'static str,
        path: &str,
        freshness: Arc<Freshness>,
        stream: impl Stream<Item = Result<Seen<T>, Failure>> + Send + 'static,
    ) -> Self {
        let path = path.to_owned();
        let stream = stream.map(move |seen| seen.map_err(|failure| failure.of(name, &path)));
        Self {
            stream: Events::from_stream(stream),
            freshness,
        }
    }

    /// Returns whether the last item may be stale: there is no connection, or the node was not read since the client reconnected. Changes
    /// are seen only while the stream is polled.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.freshness.is_stale()
    }

    pub(crate) fn freshness(&self) -> Arc<Freshness> {
        self.freshness.clone()
    }
}

impl<T> Stream for Watch<T> {
    type Item = Result<Seen<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(cx)
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Data and stat of a node.
pub(crate) type Content = (Bytes, zk::Stat);

/// Follows one node.
pub(crate) struct Follow {
    node: PersistentNode,
    /// The id of the session that the last look went through.
    session: Option<i64>,
    event: Option<NodeEvent>,
    shown: Shown,
    refused: bool,
    freshness: Arc<Freshness>,
}

/// The value that was shown last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Absent,
    /// The data of this zxid. Versions would not do: they start at zero when a node is deleted and created again.
    Data(i64),
}

impl Follow {
    pub(crate) fn new(node: PersistentNode) -> Self {
        Self {
            node,
            session: None,
            event: None,
            shown: Shown::Nothing,
            refused: false,
            freshness: Arc::default(),
        }
    }

    /// Returns whether it is up to date.
    pub(crate) fn freshness(&self) -> Arc<Freshness> {
        self.freshness.clone()
    }

    pub(crate) fn stream(
        self,
    ) -> impl Stream<Item = Result<Seen<Content>, Failure>> + Send + 'static {
        unfold(self, |mut follow| async {
            let seen = follow.next().await?;
            Some((seen, follow))
        })
    }

    async fn next(&mut self) -> Option<Result<Seen<Content>, Failure>> {
        if self.refused {
            return None;
        }
        let seen = self.read_next().await;
        self.refused = seen.is_err();
        Some(seen)
    }

    /// Waits for a state that was not shown yet.
    async fn read_next(&mut self) -> Result<Seen<Content>, Failure> {
        loop {
            if let Some(event) = self.event.take() {
                event.await;
            }
            let opened = self.node.open_in_time().await?;
            let session = opened.session.session_id();
            if self
                .session
                .replace(session)
                .is_some_and(|last| last != session)
            {
                return Ok(Seen::Renewed);
            }
            match read_with_watch(&opened.session, opened.path.as_str()).await {
                Ok((content, event)) => {
                    self.event = Some(event);
                    self.freshness.up_to_date(&opened.session);
                    let found = match &content {
                        Some((_, stat)) => Shown::Data(stat.mzxid),
                        None => Shown::Absent,
                    };
                    if std::mem::replace(&mut self.shown, found) != found {
                        return Ok(content.map_or(Seen::Absent, Seen::Value));
                    }
                }
                Err(error) => self.node.again(&opened, error).await?,
            }
        }
    }
}

/// Reads a node and sets a watch on it, whether it exists or not.
pub(crate) async fn read_with_watch(
    session: &Session,
    node: &str,
) -> Result<(Option<Content>, NodeEvent), zk::Error> {
    let zk = session.zk();
    loop {
        match zk.get_watched(node).await {
            Ok((data, stat, watch)) => return Ok((Some((data, stat)), NodeEvent::of(watch))),
            Err(zk::Error::NO_NODE) => {}
            Err(error) => return Err(error),
        }
        let (stat, watch) = zk.exists_watched(node).await?;
        if stat.is_none() {
            return Ok((None, NodeEvent::of(watch)));
        }
    }
}

/// Up to date as long as the session of the last look has a connection: then each change is announced.
#[derive(Debug, Default)]
pub(crate) struct Freshness(Mutex<Option<watch::Receiver<zk::SessionState>>>);

impl Freshness {
    /// The copy includes every change that this session has seen.
    pub(crate) fn up_to_date(&self, session: &Session) {
        self.set(Some(session.zk().states()));
    }

    /// A change was missed, or the data has to be read again.
    pub(crate) fn outdated(&self) {
        self.set(None);
    }

    pub(crate) fn is_stale(&self) -> bool {
        let session = lock(&self.0);
        let state = session.as_ref().map(|session| *session.borrow());
        state != Some(zk::SessionState::Connected)
    }

    fn set(&self, session: Option<watch::Receiver<zk::SessionState>>) {
        *lock(&self.0) = session;
    }
}
