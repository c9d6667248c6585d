//! The future of an answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::core::requests::Answer;
use crate::error::Error;
use crate::watch::Armed;

/// The answer to a request. The request is sent when the method is called, not when this is awaited, so requests made one after the
/// other are pipelined. Dropping this does not call the request back.
#[must_use = "the outcome of the request is in here"]
pub struct Reply<T> {
    answer: Pending,
    decode: Decode<T>,
    context: ReplyContext,
}

/// Makes a result of an answer.
pub(crate) type Decode<T> = fn(Answer, ReplyContext) -> Result<T, Error>;

/// What the request knew that its answer does not tell.
#[derive(Default)]
pub(crate) struct ReplyContext {
    /// How many bytes of each path are the chroot.
    pub(crate) chroot_bytes: usize,
    /// The watch that the request arms.
    pub(crate) watch: Option<Armed>,
}

enum Pending {
    Waiting(oneshot::Receiver<Answer>),
    Failed(Error),
}

impl<T> Reply<T> {
    pub(crate) fn new(
        request: Result<oneshot::Receiver<Answer>, Error>,
        context: ReplyContext,
        decode: Decode<T>,
    ) -> Self {
        Self {
            answer: match request {
                Ok(receiver) => Pending::Waiting(receiver),
                Err(error) => Pending::Failed(error),
            },
            decode,
            context,
        }
    }

    pub(crate) fn failed(error: Error, decode: Decode<T>) -> Self {
        Self::new(Err(error), ReplyContext::default(), decode)
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.answer {
            Pending::Failed(error) => Err(*error),
            Pending::Waiting(receiver) => match Pin::new(receiver).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(answer)) => answer,
                // The session never drops a request without an answer, not even at its own end.
                Poll::Ready(Err(_)) => Err(Error::Unknown),
            },
        };
        let context = std::mem::take(&mut self.context);
        Poll::Ready((self.decode)(answer, context))
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

/// Decodes the body of a successful answer. A body that does not fit the request says nothing about it.
pub(crate) fn decode_body<T, E>(
    body: &Bytes,
    read: impl FnOnce(&mut bellwether_wire::jute::Reader<'_>) -> Result<T, E>,
) -> Result<T, Error> {
    read(&mut bellwether_wire::jute::Reader::new(body)).map_err(|_| Error::Unknown)
}
