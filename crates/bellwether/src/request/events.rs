//! The stream type of all recipes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

/// A [`Stream`] of events. The method that returns it says what the events are, and when it ends.
pub struct Events<T>(BoxStream<'static, T>);

impl<T> Events<T> {
    pub(crate) fn from_stream(stream: impl Stream<Item = T> + Send + 'static) -> Self {
        Self(stream.boxed())
    }
}

impl<T> Stream for Events<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
