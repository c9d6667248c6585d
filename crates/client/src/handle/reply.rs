//! The future of an answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::core::requests::Answer;
use crate::error::{Error, SessionEnd};
use crate::handle::watch::Armed;
use crate::process::Process;

/// The answer to a request. The request is sent when the method is called, not when this is awaited, so consecutive requests
/// are pipelined. Dropping this does not cancel the request.
#[must_use = "the outcome of the request is in here"]
pub struct Reply<T> {
    answer: Answering,
    decode: Decode<T>,
    context: ReplyContext,
}

/// Decodes an answer.
pub(crate) type Decode<T> = fn(Answer, ReplyContext) -> Result<T, Error>;

/// Facts about the request that its answer does not contain.
#[derive(Default)]
pub(crate) struct ReplyContext {
    /// The length of the chroot in each path, in bytes.
    pub(crate) chroot_bytes: usize,
    /// The process that sent it, and that gets the answer.
    pub(crate) process: Option<Process>,
    /// The watch that the request arms.
    pub(crate) watch: Option<Armed>,
}

/// The answer in a forked child: that of its parent does not arrive there.
const FORKED: Answer = Err(Error::SessionEnded(SessionEnd::Forked));

/// An answer that is waited for.
pub(crate) enum Answering {
    Waiting(oneshot::Receiver<Answer>),
    /// It takes more than one request: see `fallback.rs`.
    Later(Pin<Box<dyn Future<Output = Answer> + Send + Sync>>),
    Failed(Error),
}

/// A request that was sent, or why it was not.
pub(crate) type Request = Result<oneshot::Receiver<Answer>, Error>;

impl Answering {
    pub(crate) fn of(request: Request) -> Self {
        request.map_or_else(Self::Failed, Self::Waiting)
    }

    pub(crate) fn later(answer: impl Future<Output = Answer> + Send + Sync + 'static) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T> Reply<T> {
    pub(crate) fn new(request: Request, context: ReplyContext, decode: Decode<T>) -> Self {
        Self::of(Answering::of(request), context, decode)
    }

    pub(crate) fn of(answer: Answering, context: ReplyContext, decode: Decode<T>) -> Self {
        Self {
            answer,
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
        let process = self.context.process;
        let is_forked = || process.is_some_and(Process::is_forked);
        let answer = match &mut self.answer {
            Answering::Failed(error) => Err(*error),
            Answering::Waiting(receiver) => match Pin::new(receiver).poll(cx) {
                Poll::Pending if is_forked() => FORKED,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(answer)) => answer,
                // The session never drops a request without an answer, not even at its own end.
                Poll::Ready(Err(_)) => Err(Error::Unknown),
            },
            Answering::Later(answer) => match answer.as_mut().poll(cx) {
                Poll::Pending if is_forked() => FORKED,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer,
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

/// Decodes the body of a successful answer. A body that cannot be decoded leaves the outcome unknown.
pub(crate) fn decode_body<T, E>(
    body: &Bytes,
    read: impl FnOnce(&mut bellwether_wire::jute::Reader<'_>) -> Result<T, E>,
) -> Result<T, Error> {
    read(&mut bellwether_wire::jute::Reader::new(body)).map_err(|_| Error::Unknown)
}
