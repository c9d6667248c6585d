//! Spans of the recipe calls, through the facade of the `tracing` crate: one for each call of a verb, with its path, its fencing token and
//! its outcome. docs/traces.md lists them.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Display};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bellwether_client::is_session_thread;
use pin_project_lite::pin_project;
use tracing::field::display;
use tracing::instrument::Instrumented;
use tracing::{Instrument as _, Span};

/// Begins a call. Its name is that of the recipe and the verb.
macro_rules! call {
    ($name:literal, $path:expr) => {
        $crate::session::call::Call::begin(|| {
            use tracing::field::Empty;
            tracing::info_span!(
                $name,
                path = $path,
                token = Empty,
                outcome = Empty,
                error = Empty
            )
        })
    };
}

pub(crate) use call;

/// A call of a recipe, in its span.
pub(crate) struct Call(Span);

impl Call {
    pub(crate) fn begin(span: impl FnOnce() -> Span) -> Self {
        // Steps of other calls run on the thread that all sessions share. A subscriber that blocks must not stop it.
        match is_session_thread() {
            true => Self(Span::none()),
            false => Self(span()),
        }
    }

    /// Records the number of the fencing token that the call is about.
    pub(crate) fn with_token(self, token: i64) -> Self {
        self.0.record("token", token);
        self
    }

    /// Runs a call whose outcome is `done` or an error.
    pub(crate) fn run<T, E: Error>(
        self,
        call: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, E>> {
        self.run_to(call, |_| Outcome::named("done"))
    }

    /// Runs a call that cannot fail.
    pub(crate) async fn wait(self, call: impl Future<Output = ()>) {
        let call = async {
            call.await;
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.run(call).await;
    }

    /// Runs a call that answers whether: its outcome is `yes` or `no`.
    pub(crate) fn ask<E: Error>(
        self,
        call: impl Future<Output = Result<bool, E>>,
    ) -> impl Future<Output = Result<bool, E>> {
        self.run_to(call, |is| Outcome::named(if *is { "yes" } else { "no" }))
    }

    /// Runs a call that finds something or nothing: its outcome is `found` or `none`.
    pub(crate) fn find<T, E: Error>(
        self,
        call: impl Future<Output = Result<Option<T>, E>>,
    ) -> impl Future<Output = Result<Option<T>, E>> {
        self.run_to(call, |found| match found {
            Some(_) => Outcome::named("found"),
            None => Outcome::NONE,
        })
    }

    /// Runs a call in its span, and records how it ended.
    pub(crate) fn run_to<T, E, F, O>(self, call: F, outcome: O) -> RunningCall<F, O>
    where
        F: Future<Output = Result<T, E>>,
        E: Error,
        O: FnOnce(&T) -> Outcome,
    {
        RunningCall {
            call: call.instrument(self.0),
            outcome: Some(outcome),
        }
    }
}

pin_project! {
    /// A call under way. A future of its own, because an `async` block around each call would need the room of the call twice.
    pub(crate) struct RunningCall<F, O> {
        #[pin]
        call: Instrumented<F>,
        // Until it has ended.
        outcome: Option<O>,
    }

    impl<F, O> PinnedDrop for RunningCall<F, O> {
        fn drop(this: Pin<&mut Self>) {
            if this.outcome.is_some() {
                this.call.span().record("outcome", "cancelled");
            }
        }
    }
}

impl<T, E, F, O> Future for RunningCall<F, O>
where
    F: Future<Output = Result<T, E>>,
    E: Error,
    O: FnOnce(&T) -> Outcome,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut this = self.project();
        let ended = ready!(this.call.as_mut().poll(cx));
        let span = this.call.span();
        match (&ended, this.outcome.take()) {
            (Ok(value), Some(outcome)) => outcome(value).record(span),
            (Err(error), _) => {
                span.record("outcome", "failed");
                span.record("error", display(Chain(error)));
            }
            (Ok(_), None) => unreachable!("a call ends once"),
        }
        Poll::Ready(ended)
    }
}

/// How a call without an error ended.
pub(crate) struct Outcome {
    name: &'static str,
    token: Option<i64>,
}

impl Outcome {
    /// There was nothing to find, or another contender is in the way of a call that does not wait.
    pub(crate) const NONE: Self = Self::named("none");

    pub(crate) const fn named(name: &'static str) -> Self {
        Self { name, token: None }
    }

    pub(crate) const fn held(token: i64) -> Self {
        Self {
            name: "held",
            token: Some(token),
        }
    }

    fn record(self, span: &Span) {
        span.record("outcome", self.name);
        if let Some(token) = self.token {
            span.record("token", token);
        }
    }
}

/// An error with its sources.
struct Chain<'a, E>(&'a E);

impl<E: Error> Display for Chain<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bellwether_client::session_thread;

    use super::*;

    #[test]
    fn session_thread_makes_no_span() {
        let begin = || {
            let span = || panic!("a subscriber could block here");
            Call::begin(span).0.is_none()
        };
        let begun = session_thread().spawn(async move { begin() });
        assert!(session_thread().block_on(begun).unwrap());
    }
}
