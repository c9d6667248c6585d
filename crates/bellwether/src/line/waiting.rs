//! A place in a line whose turn is still to come.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::error::AcquireError;
use crate::hold::guard::Guard;
use crate::line::contender::Contender;
use crate::line::progress::Progress;
use crate::line::wait_queue::WaitQueue;
use crate::session::telemetry::call;

/// A place in the line of a recipe, which becomes a guard when its turn has come. When it is dropped, the place is given up.
#[must_use = "the place in the line is given up when this is dropped"]
pub struct Waiting<G> {
    wait_queue: WaitQueue,
    contender: Contender,
    take: Take<G>,
}

/// Waits for the turn of a contender and makes it a guard.
type Take<G> =
    Box<dyn FnOnce(Contender) -> BoxFuture<'static, Result<G, AcquireError>> + Send + Sync>;

impl<G> Waiting<G> {
    pub(crate) fn new<F>(
        wait_queue: &WaitQueue,
        contender: Contender,
        take: impl FnOnce(Contender) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<G, AcquireError>> + Send + 'static,
    {
        Self {
            wait_queue: wait_queue.clone(),
            contender,
            take: Box::new(|contender| Box::pin(take(contender))),
        }
    }

    /// How the wait is going. It looks once a second, less often far back in the line, and costs the servers a list each
    /// time.
    pub fn progress(&self) -> Progress {
        Progress::of(&self.contender)
    }

    /// Waits for the turn and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the latest.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn turn(self) -> Result<G, AcquireError>
    where
        G: Guard,
    {
        call!("line.turn", self.wait_queue.options.path)
            .hold(self.turn_untraced())
            .await
    }

    async fn turn_untraced(mut self) -> Result<G, AcquireError> {
        // The line was not read since the place was taken, possibly long ago; the place may be lost by now.
        let looked = self.contender.list().await;
        looked.map_err(|failure| self.wait_queue.error(failure))?;
        (self.take)(self.contender).await
    }
}

impl<G> fmt::Debug for Waiting<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("contender", &self.contender)
            .finish_non_exhaustive()
    }
}
