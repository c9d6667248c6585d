//! The streams that verbs return.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use futures_util::stream::{BoxStream, StreamExt as _};

/// A [`Stream`] of events. The method that returns it says what the events are, and when it ends. It stays at its end, however often it is
/// polled.
pub struct Events<T>(Option<BoxStream<'static, T>>);

impl<T> Events<T> {
    pub(crate) fn from_stream(stream: impl Stream<Item = T> + Send + 'static) -> Self {
        Self(Some(stream.boxed()))
    }
}

impl<T> Stream for Events<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(stream) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let next = ready!(stream.poll_next_unpin(cx));
        if next.is_none() {
            self.0 = None;
        }
        Poll::Ready(next)
    }
}

impl<T> FusedStream for Events<T> {
    fn is_terminated(&self) -> bool {
        self.0.is_none()
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::stream::{once, unfold};

    use super::*;

    #[test]
    fn stream_stays_at_its_end() {
        let ends = unfold(Some(1), |left| async move { Some((left?, None)) });
        let mut events = Events::from_stream(ends);
        assert_eq!(events.next().now_or_never(), Some(Some(1)));
        for _ in 0..3 {
            assert_eq!(events.next().now_or_never(), Some(None));
            assert!(events.is_terminated());
        }
    }

    #[test]
    fn what_a_stream_keeps_is_dropped_at_its_end() {
        let kept = std::sync::Arc::new(());
        let held = kept.clone();
        let mut events = Events::from_stream(once(async move { drop(held.clone()) }));
        assert_eq!(std::sync::Arc::strong_count(&kept), 2);
        assert_eq!(events.next().now_or_never(), Some(Some(())));
        assert_eq!(events.next().now_or_never(), Some(None));
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    }
}
