//! The state of a hold, and a handle that reports it without keeping the hold.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_core::Stream;
use futures_util::stream::unfold;
use tokio::sync::watch;

use crate::error::Lost;
use crate::hold::fence::FencingToken;
use crate::hold::watch_over::is_over;
use crate::session::telemetry;
use crate::session::{Session, WeakSession};

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// It is held.
    Held,
    /// The connection is down. It is still held, and nothing is lost if the client reconnects in time.
    Suspended,
    /// The guard was released or dropped.
    Released,
    /// The hold can no longer be relied on, and never will be again: another client deleted the node, the session has ended, or it may end
    /// soon.
    Lost,
}

impl HoldState {
    /// Whether the hold has ended, for any reason.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Released | Self::Lost)
    }
}

/// Reports whether something is still held, to other parts of a program. [`Hold::watch`](crate::Hold::watch) returns it.
///
/// It keeps neither the hold nor the session. Clones are cheap, and can be sent to other tasks and threads, which then stop when the
/// owner of the guard releases it or it is lost.
#[derive(Clone, Debug)]
pub struct HoldWatch {
    path: String,
    token: FencingToken,
    state: watch::Sender<HoldState>,
    session: WeakSession,
}

impl HoldWatch {
    pub(super) fn new(path: &str, token: FencingToken, session: &Session) -> Self {
        Self {
            path: path.to_owned(),
            token,
            state: watch::channel(HoldState::Held).0,
            session: session.downgrade(),
        }
    }

    /// The path of the recipe.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The fencing token of the hold, as [`Hold::token`](crate::Hold::token).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Whether it is held at this moment, as far as this process can know. Compares clocks: a process that was paused gets the true
    /// answer when it asks after the pause.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.state().is_over()
    }

    /// The state at this moment.
    #[must_use]
    pub fn state(&self) -> HoldState {
        match self.session.upgrade() {
            Some(session) if !is_over(&session) => {}
            // The tasks that wait are its parent's, and are not told.
            Some(session) if session.is_forked() => return HoldState::Lost,
            // Recorded, because otherwise a late answer of the servers would make it held again.
            _ => drop(self.note(HoldState::Lost)),
        }
        *self.state.borrow()
    }

    /// The state as a stream: the current one first, then each change that is seen in time. It ends with [`HoldState::Lost`] or
    /// [`HoldState::Released`].
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        let shown = (self.clone(), None);
        Box::pin(unfold(Some(shown), |shown| async {
            let (watch, shown) = shown?;
            let state = watch.other_than(shown).await;
            Some((state, (!state.is_over()).then_some((watch, Some(state)))))
        }))
    }

    /// Waits for another state than the one that was shown last. Each poll compares clocks before it waits.
    async fn other_than(&self, shown: Option<HoldState>) -> HoldState {
        let mut states = self.state.subscribe();
        let mut told = pin!(states.wait_for(|state| Some(*state) != shown));
        poll_fn(|cx| match self.state() {
            state if Some(state) != shown => Poll::Ready(state),
            _ => told
                .as_mut()
                .poll(cx)
                .map(|told| told.map_or(HoldState::Lost, |state| *state)),
        })
        .await
    }

    /// Resolves when the hold is over: lost, released, or its guard dropped. [`state`](Self::state) tells which.
    ///
    /// Each poll compares clocks before it waits, so that in `tokio::select!` with `biased;` and this branch first, no other branch
    /// runs after a pause that outlasted the hold. [`run`](Self::run) does the same and cannot be written the wrong way round.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the hold is over by then.
    pub async fn lost(&self) {
        let mut states = self.state.subscribe();
        let mut told = pin!(states.wait_for(HoldState::is_over));
        poll_fn(|cx| match self.is_held() {
            true => told.as_mut().poll(cx).map(drop),
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Runs a future as long as it is held: see [`Hold::run`](crate::Hold::run).
    ///
    /// # Cancel safety
    ///
    /// That of the future.
    ///
    /// # Errors
    ///
    /// [`Lost`] if the hold was over before the future was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_while(self.lost(), work).await.ok_or_else(|| Lost {
            path: self.path.clone(),
        })
    }

    /// Whether this is a forked child of the process that holds it.
    pub(super) fn is_forked(&self) -> bool {
        let session = self.session.upgrade();
        session.is_some_and(|session| session.is_forked())
    }

    /// Records a new state and returns whether it is a change. A hold that has ended stays ended. A loss is counted here: the task that
    /// watches over the hold may be late.
    pub(super) fn note(&self, now: HoldState) -> bool {
        self.state.send_if_modified(|state| {
            let changes = *state != now && !state.is_over();
            if changes {
                *state = now;
                if now == HoldState::Lost {
                    telemetry::hold_lost();
                }
            }
            changes
        })
    }
}

/// Runs a future to its end, or returns `None` when `lost` resolves. Each poll checks `lost` first.
pub(crate) async fn run_while<F: Future>(
    lost: impl Future<Output = ()>,
    work: F,
) -> Option<F::Output> {
    let (mut lost, mut work) = (pin!(lost), pin!(work));
    poll_fn(|cx| match lost.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}
