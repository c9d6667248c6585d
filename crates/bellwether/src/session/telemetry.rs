//! Spans and metrics of the recipes, through the facades of the `tracing` and `metrics` crates: nothing is recorded until the program
//! installs a subscriber or a recorder.
//!
//! There is one span for each call of a verb, with its path, its fencing token and its outcome. docs/traces.md and docs/metrics.md list them.

use std::fmt::{self, Display};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::is_session_thread;
use futures_util::future::Either;
use metrics::{counter, histogram};
use pin_project_lite::pin_project;
use tracing::field::display;
use tracing::instrument::Instrumented;
use tracing::{Instrument as _, Span};

use crate::error::{Error, ErrorKind, Failure};
use crate::session::Moment;
use crate::session::client::Client;
use crate::session::runtime::SessionRuntime;

/// Begins a call. Its name is that of the recipe and the verb.
macro_rules! call {
    ($name:literal, $path:expr) => {{
        let path = $path;
        $crate::session::telemetry::Call::begin($name, &path, || {
            use tracing::field::Empty;
            tracing::info_span!($name, path, token = Empty, outcome = Empty, error = Empty)
        })
    }};
}

pub(crate) use call;

/// A call of a recipe: its span, its time limit, and its path and name in errors.
pub(crate) struct Call {
    name: &'static str,
    path: String,
    span: Span,
    limit: Option<(SessionRuntime, Duration)>,
    /// Set if the call ends when this client is closed.
    client: Option<Client>,
}

impl Call {
    pub(crate) fn begin(
        name: &'static str,
        path: &(impl AsRef<str> + ?Sized),
        span: impl FnOnce() -> Span,
    ) -> Self {
        Self {
            name,
            path: path.as_ref().to_owned(),
            // Steps of other calls run on the thread that all sessions share. A subscriber that blocks must not stop it.
            span: match is_session_thread() {
                true => Span::none(),
                false => span(),
            },
            limit: None,
            client: None,
        }
    }

    /// Records the number of the fencing token that the call is about.
    pub(crate) fn with_token(self, token: i64) -> Self {
        self.span.record("token", token);
        self
    }

    /// Ends the call after `limit`, if there is one, with [`ErrorKind::TimedOut`].
    pub(crate) fn within(self, runtime: &SessionRuntime, limit: Option<Duration>) -> Self {
        let limit = limit.map(|limit| (runtime.clone(), limit));
        Self { limit, ..self }
    }

    /// Does the same as [`within`](Self::within), for a call that waits for something new: it also ends when the client is closed.
    pub(crate) fn waits(self, client: &Client, limit: Option<Duration>) -> Self {
        let call = self.within(client.runtime(), limit);
        let client = Some(client.clone());
        Self { client, ..call }
    }

    /// Runs a call whose outcome is `done` or an error.
    pub(crate) fn run<T>(
        self,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> impl Future<Output = Result<T, Error>> {
        self.run_to(call, |_| Outcome::named("done"))
    }

    /// Runs a call that cannot fail.
    pub(crate) async fn wait(self, call: impl Future<Output = ()>) {
        let call = async {
            call.await;
            Ok(())
        };
        self.run(call).await.expect("it has no way to fail");
    }

    /// Runs a call that answers whether: its outcome is `yes` or `no`.
    pub(crate) fn ask(
        self,
        call: impl Future<Output = Result<bool, Failure>>,
    ) -> impl Future<Output = Result<bool, Error>> {
        self.run_to(call, |is| Outcome::named(if *is { "yes" } else { "no" }))
    }

    /// Runs a call that finds something or nothing: its outcome is `found` or `none`.
    pub(crate) fn find<T>(
        self,
        call: impl Future<Output = Result<Option<T>, Failure>>,
    ) -> impl Future<Output = Result<Option<T>, Error>> {
        self.run_to(call, |found| match found {
            Some(_) => Outcome::named("found"),
            None => Outcome::NONE,
        })
    }

    /// Runs a call in its span and its limit, and records how it ended.
    pub(crate) fn run_to<T, F, O>(
        self,
        call: F,
        outcome: O,
    ) -> RunningCall<impl Future<Output = Result<T, Failure>>, O>
    where
        F: Future<Output = Result<T, Failure>>,
        O: FnOnce(&T) -> Outcome,
    {
        let Self {
            name,
            path,
            span,
            limit,
            client,
        } = self;
        let call = match (&limit, &client) {
            (None, None) => Either::Right(call),
            _ => {
                // On the heap here already, so that the future of a call stays small.
                let call = Box::pin(call);
                let call = async move {
                    match client {
                        Some(client) => client.unless_closed(call).await,
                        None => call.await,
                    }
                };
                Either::Left(async move {
                    let Some((runtime, limit)) = limit else {
                        return call.await;
                    };
                    let ended = runtime.timeout(limit, call).await;
                    ended.unwrap_or_else(|| Err(ErrorKind::TimedOut { limit }.into()))
                })
            }
        };
        RunningCall {
            call: call.instrument(span),
            name,
            path,
            outcome: Some(outcome),
        }
    }
}

pin_project! {
    /// A call under way. A future of its own, because an `async` block around each call would need the room of the call twice.
    pub(crate) struct RunningCall<F, O> {
        #[pin]
        call: Instrumented<F>,
        name: &'static str,
        path: String,
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

impl<T, F, O> Future for RunningCall<F, O>
where
    F: Future<Output = Result<T, Failure>>,
    O: FnOnce(&T) -> Outcome,
{
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let ended = ready!(this.call.as_mut().poll(cx));
        let ended = ended.map_err(|failure| failure.of(this.name, this.path));
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
struct Chain<'a>(&'a dyn std::error::Error);

impl Display for Chain<'_> {
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
            Call::begin("lock.acquire", "/path", span).span.is_none()
        };
        let begun = session_thread().spawn(async move { begin() });
        assert!(session_thread().block_on(begun).unwrap());
    }
}
