//! A consumer that goes on over the end of its session.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use tracing::{info, warn};

use crate::queue::OrderedQueue;
use crate::queue::claim::Claim;
use crate::queue::error::TakeError;
use crate::queue::order::Order;
use crate::queue::payload::Payload;

/// How long to wait after a failure that the next try may not meet.
const PAUSE: Duration = Duration::from_millis(500);

/// A stream of claims without end; see [`OrderedQueue::consumer`].
///
/// An error is told and is not the end: after [`TakeError::SessionEnded`] the next item is claimed through the session
/// that [follows](crate::Client::successor). The stream ends only where trying again cannot help:
/// [`TakeError::BadPath`] and [`TakeError::Refused`].
pub struct Consumer<T>(BoxStream<'static, Result<Claim<T>, TakeError>>);

impl<T: Payload + Send + 'static> Consumer<T> {
    pub(crate) fn of<O: Order>(queue: OrderedQueue<O, T>) -> Self {
        Self(unfold(Some(queue), next).boxed())
    }
}

async fn next<O: Order, T: Payload + Send + 'static>(
    queue: Option<OrderedQueue<O, T>>,
) -> Option<(Result<Claim<T>, TakeError>, Option<OrderedQueue<O, T>>)> {
    let mut queue = queue?;
    let client = queue.client();
    while queue.client().is_ended() {
        match client.successor().await {
            Ok(next) => {
                info!(path = queue.path(), "consumer goes on in a new session");
                queue = queue.through(&next);
            }
            Err(error) => {
                warn!(path = queue.path(), %error, "no new session for the consumer yet");
                client.home().sleep(PAUSE).await;
            }
        }
    }
    let taken = queue.take().await;
    match &taken {
        Ok(_) | Err(TakeError::SessionEnded { .. }) => {}
        Err(TakeError::BadPath { .. } | TakeError::Refused { .. }) => return Some((taken, None)),
        Err(_) => queue.client().home().sleep(PAUSE).await,
    }
    Some((taken, Some(queue)))
}

impl<T> Stream for Consumer<T> {
    type Item = Result<Claim<T>, TakeError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}
