//! The data of one node, as it changes, for as long as somebody listens.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_client as zk;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use super::{Site, StateError};
use crate::client::Client;
use crate::node_event::NodeEvent;

/// What a [`Watch`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen<T> {
    /// What there is now. Values that followed each other fast may be left out, but never the last one.
    Value(T),
    /// There is nothing now: not yet, or not any more.
    Absent,
    /// The session has ended, and another one has taken its place. If anything changed meanwhile, that comes next.
    Renewed,
}

/// A stream of what there is: the present state first, then each change.
///
/// It goes on over lost connections and over the end of a session, says so with [`Seen::Renewed`], and never shows something
/// older than what it has shown. It ends only after [`StateError::Refused`], or [`StateError::TooLarge`] where there is more than
/// can be watched. Nothing is sent until it is polled.
pub struct Watch<T>(BoxStream<'static, Result<Seen<T>, StateError>>);

impl<T> Watch<T> {
    pub(crate) fn new(
        stream: impl Stream<Item = Result<Seen<T>, StateError>> + Send + 'static,
    ) -> Self {
        Self(stream.boxed())
    }
}

impl<T> Stream for Watch<T> {
    type Item = Result<Seen<T>, StateError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Data and stat of a node.
type Content = (Bytes, zk::Stat);

/// Follows one node.
pub(crate) struct Follow {
    site: Site,
    /// The id of the session that the last look went through.
    session: Option<i64>,
    event: Option<NodeEvent>,
    shown: Shown,
    refused: bool,
}

/// What was shown last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Absent,
    /// The data of this zxid. Versions would not do: they begin anew with a node that was deleted and made again.
    Data(i64),
}

impl Follow {
    pub(crate) fn new(site: Site) -> Self {
        Self {
            site,
            session: None,
            event: None,
            shown: Shown::Nothing,
            refused: false,
        }
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

    /// Waits for something that was not shown yet.
    async fn look(&mut self) -> Result<Seen<Content>, StateError> {
        loop {
            if let Some(event) = self.event.take() {
                event.await;
            }
            let visit = self.site.visit_in_time().await?;
            let session = visit.client.session_id();
            if self
                .session
                .replace(session)
                .is_some_and(|last| last != session)
            {
                return Ok(Seen::Renewed);
            }
            match read_with_watch(&visit.client, visit.node.as_str()).await {
                Ok((content, event)) => {
                    self.event = Some(event);
                    let found = match &content {
                        Some((_, stat)) => Shown::Data(stat.mzxid),
                        None => Shown::Absent,
                    };
                    if std::mem::replace(&mut self.shown, found) != found {
                        return Ok(content.map_or(Seen::Absent, Seen::Value));
                    }
                }
                Err(error) => self.site.again(&visit, error).await?,
            }
        }
    }
}

/// Reads a node and arms a watch on it, whether it is there or not.
pub(crate) async fn read_with_watch(
    client: &Client,
    node: &str,
) -> Result<(Option<Content>, NodeEvent), zk::Error> {
    let zk = client.zk();
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
