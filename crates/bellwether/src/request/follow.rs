//! A stream of the data of one node.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether_client as zk;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::error::StateError;
use crate::request::freshness::Freshness;
use crate::request::node_event::NodeEvent;
use crate::request::persistent_node::PersistentNode;
use crate::session::open_session::Session;

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
/// ends only after an error that no retry would change: [`StateError::BadPath`], [`StateError::Refused`], [`StateError::TooLarge`] if there
/// are more nodes than can be watched, and [`StateError::NoSession`] if the client is closed. Nothing is sent until it is polled.
pub struct Watch<T> {
    stream: BoxStream<'static, Result<Seen<T>, StateError>>,
    freshness: Arc<Freshness>,
}

impl<T> Watch<T> {
    pub(crate) fn new(
        freshness: Arc<Freshness>,
        stream: impl Stream<Item = Result<Seen<T>, StateError>> + Send + 'static,
    ) -> Self {
        Self {
            stream: stream.boxed(),
            freshness,
        }
    }

    /// Whether the last item may be stale: there is no connection, or the node was not read since the client reconnected. Changes are seen
    /// only while the stream is polled.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.freshness.is_stale()
    }

    pub(crate) fn freshness(&self) -> Arc<Freshness> {
        self.freshness.clone()
    }
}

impl<T> Stream for Watch<T> {
    type Item = Result<Seen<T>, StateError>;

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

/// What was shown last.
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

    /// Whether it is up to date.
    pub(crate) fn freshness(&self) -> Arc<Freshness> {
        self.freshness.clone()
    }

    pub(crate) fn stream(
        self,
    ) -> impl Stream<Item = Result<Seen<Content>, StateError>> + Send + 'static {
        unfold(self, |mut follow| async {
            let seen = follow.next().await?;
            Some((seen, follow))
        })
    }

    async fn next(&mut self) -> Option<Result<Seen<Content>, StateError>> {
        if self.refused {
            return None;
        }
        let seen = self.look().await;
        self.refused = seen.is_err();
        Some(seen)
    }

    /// Waits for a state that was not shown yet.
    async fn look(&mut self) -> Result<Seen<Content>, StateError> {
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
