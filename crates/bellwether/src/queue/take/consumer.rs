//! A consumer that continues over session expiry.

use std::time::Duration;

use futures_util::stream::unfold;

use crate::node::data::Payload;
use crate::queue::OrderedQueue;
use crate::queue::error::TakeError;
use crate::queue::order::Order;
use crate::queue::take::claim::Claim;
use crate::request::Events;

/// How long to wait after a transient failure.
const PAUSE: Duration = Duration::from_millis(500);

/// A stream of claims without end; see [`OrderedQueue::consumer`].
///
/// An error is an item and not the end: after [`TakeError::SessionEnded`] the next item is claimed in the next session. The stream ends
/// only where a retry cannot help: [`TakeError::BadPath`], [`TakeError::OtherOrder`], [`TakeError::TooLarge`],
/// [`TakeError::Refused`], and a client that is closed.
pub type Consumer<T> = Events<Result<Claim<T>, TakeError>>;

impl<T: Payload + Send + 'static> Consumer<T> {
    pub(crate) fn of<O: Order>(queue: OrderedQueue<O, T>) -> Self {
        Self::from_stream(unfold(Some(queue), next))
    }
}

async fn next<O: Order, T: Payload + Send + 'static>(
    queue: Option<OrderedQueue<O, T>>,
) -> Option<(Result<Claim<T>, TakeError>, Option<OrderedQueue<O, T>>)> {
    let queue = queue?;
    // While no server answers there is nothing to report: the client writes it to the log.
    let _ = queue.client().session_in_time().await;
    let taken = queue.take().await;
    match &taken {
        Ok(_) | Err(TakeError::SessionEnded { .. }) => {}
        Err(
            TakeError::BadPath { .. }
            | TakeError::OtherOrder { .. }
            | TakeError::TooLarge { .. }
            | TakeError::Refused { .. },
        ) => return Some((taken, None)),
        Err(TakeError::NoSession { source, .. }) if source.is_final() => {
            return Some((taken, None));
        }
        Err(_) => queue.client().runtime().sleep(PAUSE).await,
    }
    Some((taken, Some(queue)))
}
