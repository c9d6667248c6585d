//! Spans and metrics of the recipes, through the facades of the `tracing` and `metrics` crates: nothing is recorded until the program
//! installs a subscriber or a recorder.
//!
//! There is one span for each call of a verb, with its path, its fencing token and its outcome. docs/traces.md and docs/metrics.md list them.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Display};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::is_session_thread;
use metrics::{counter, histogram};
use pin_project_lite::pin_project;
use tracing::field::display;
use tracing::instrument::Instrumented;
use tracing::{Instrument as _, Span};

use crate::session::Moment;

/// Begins a call. Its name is that of the recipe and the verb.
macro_rules! call {
    ($name:literal, $path:expr) => {
        $crate::session::telemetry::Call::begin(|| {
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

/// The way in which a call without an error ended.
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

/// The wait of a contender for its hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTimer {
    begin: Moment,
    /// True if another contender was in the way.
    pub(crate) is_for_another: bool,
}

impl WaitTimer {
    pub(crate) fn begin() -> Self {
        Self {
            begin: Moment::now(),
            is_for_another: false,
        }
    }

    /// The contender was granted its hold.
    pub(crate) fn granted(self) {
        histogram!("bellwether_wait_seconds").record(Moment::now() - self.begin);
        if self.is_for_another {
            counter!("bellwether_handovers_total").increment(1);
        }
    }
}

/// A hold has ended in this process, for any reason.
pub(crate) fn hold_ended(held: Duration) {
    histogram!("bellwether_hold_seconds").record(held);
}

/// A hold was lost: its session may have ended, or another client deleted its node.
pub(crate) fn hold_lost() {
    counter!("bellwether_holds_lost_total").increment(1);
}

/// A request of a recipe is sent again, because its answer was lost with the connection or the session.
pub(crate) fn retried() {
    counter!("bellwether_retries_total").increment(1);
}

/// A session was opened.
pub(crate) fn session_opened() {
    counter!("bellwether_client_sessions_total").increment(1);
}

/// The part of the traffic of one session that was reported.
///
/// The client counts its requests and connections anyway. They are reported at each heartbeat and at the end of the session, so that a
/// request pays nothing for it.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    reconnects: AtomicU64,
}

impl Traffic {
    /// Reports what has happened since the last report.
    pub(crate) fn report(&self, zk: &zk::Client) {
        let requests = grown(&self.requests, zk.requests());
        if requests > 0 {
            counter!("bellwether_client_requests_total").increment(requests);
        }
        let reconnects = grown(&self.reconnects, zk.connections().saturating_sub(1));
        if reconnects > 0 {
            counter!("bellwether_client_reconnects_total").increment(reconnects);
        }
    }
}

/// Raises a count to `now`. Returns by how much, so that two reports at the same time count nothing twice.
fn grown(reported: &AtomicU64, now: u64) -> u64 {
    now.saturating_sub(reported.fetch_max(now, Ordering::Relaxed))
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
