//! The state of a hold, a handle that reports it without keeping the hold, and the task that watches over it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Weak;
use std::task::Poll;
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use futures_util::stream::unfold;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::error::Lost;
use crate::events::Events;
use crate::hold::ephemeral_node::OwnWatch;
use crate::hold::fence::FencingToken;
use crate::node::data::Revocation;
use crate::session::retry::{Happened, Retry};
use crate::session::slots::HeldSlot;
use crate::session::telemetry;
use crate::session::{Session, WeakSession};

/// The states of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// Held, as far as this process knows.
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
    /// Returns whether the hold has ended, for any reason.
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

    /// Returns whether it is held at this moment, as far as this process can know. Compares clocks: a process that was paused gets the true
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
    pub fn states(&self) -> Events<HoldState> {
        let shown = (self.clone(), None);
        Events::from_stream(unfold(Some(shown), |shown| async {
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

    /// Returns whether this is a forked child of the process that holds it.
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

/// The node of a hold is watched for deletion by other clients once the hold is this old. Shorter holds end before it would matter, and
/// cost no watch.
const WATCH_AFTER: Duration = Duration::from_millis(10);

/// A hold whose state the task updates. It is lost when the task is dropped with its runtime: nothing proves it any more, and nothing else
/// wakes its waiters. When a hold ends otherwise, its state is final before the task is dropped.
pub(super) struct WatchedOver(pub(super) HoldWatch);

impl Drop for WatchedOver {
    fn drop(&mut self) {
        self.0.note(HoldState::Lost);
    }
}

/// Updates the state of a hold until it is lost.
pub(super) async fn watch_over(
    session: Session,
    (node, czxid): (String, i64),
    own_watch: Option<OwnWatch>,
    state: WatchedOver,
    asked: watch::Sender<Option<Revocation>>,
    slot: Weak<HeldSlot>,
) {
    // A guard that is lost may stay in scope, and other tasks wait for its slot.
    watch_node(&session, (&node, czxid), own_watch, &state.0, &asked).await;
    if let Some(slot) = slot.upgrade() {
        slot.free();
    }
}

async fn watch_node(
    session: &Session,
    (node, czxid): (&str, i64),
    own_watch: Option<OwnWatch>,
    state: &HoldWatch,
    asked: &watch::Sender<Option<Revocation>>,
) {
    let mut states = session.zk().states();
    let mut gone = Box::pin(node_gone(session, node, czxid, own_watch, asked));
    loop {
        let link = *states.borrow_and_update();
        let now = match link {
            link if link.is_ended() => HoldState::Lost,
            _ if is_over(session) => HoldState::Lost,
            zk::SessionState::Disconnected => HoldState::Suspended,
            _ => HoldState::Held,
        };
        let changed = state.note(now);
        if changed && now == HoldState::Lost {
            let node = node.to_owned();
            log::emit(move || info!(node, "hold is lost"));
        }
        if now == HoldState::Lost {
            return;
        }
        // Never zero: such a timer is done at once, and other tasks could not run.
        let left = session.liveness().deadline().left();
        let pause = left.clamp(Duration::from_millis(1), longest_sleep(session));
        tokio::select! {
            biased;
            () = &mut gone => {
                // The end of a release is seen here too.
                if state.note(HoldState::Lost) {
                    let node = node.to_owned();
                    log::emit(move || info!(node, "hold was ended by another client"));
                }
                return;
            }
            _ = states.changed() => {}
            () = session.runtime().sleep(pause) => {}
        }
    }
}

/// Returns whether the session has ended, or may have ended by the clock.
pub(super) fn is_over(session: &Session) -> bool {
    session.is_ended() || !session.liveness().is_alive()
}

/// The longest sleep of a task that watches a deadline: timers stand still while the machine is suspended.
pub(super) fn longest_sleep(session: &Session) -> Duration {
    (session.session_timeout() / 20).max(Duration::from_millis(1))
}

/// Resolves when another client has deleted the node. Until then, passes on requests to the holder.
async fn node_gone(
    session: &Session,
    node: &str,
    czxid: i64,
    mut own_watch: Option<OwnWatch>,
    asked: &watch::Sender<Option<Revocation>>,
) {
    if own_watch.is_none() {
        session.runtime().sleep(WATCH_AFTER).await;
    }
    let read = || session.zk().get_watched(node);
    loop {
        let own = match own_watch.take() {
            Some(own) => own,
            None => match Retry::unlimited().answer(read).await {
                Ok((data, stat, watch)) if stat.czxid == czxid => OwnWatch::of(&data, watch),
                // Gone; the next holder's node may already be there.
                Ok(_) | Err(zk::Error::NO_NODE) => return,
                // The state of the session reports its end.
                Err(zk::Error::SessionEnded(_)) => break,
                Err(error) => {
                    let node = node.to_owned();
                    log::emit(move || {
                        warn!(node, %error, "cannot watch the own node: its deletion would go unseen");
                    });
                    break;
                }
            },
        };
        asked.send_if_modified(|asked| {
            let news = own.asked.is_some() && *asked != own.asked;
            if news {
                asked.clone_from(&own.asked);
            }
            news
        });
        match own.event.await {
            Happened::Deleted => return,
            Happened::SessionEnded => break,
            _ => {}
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use bellwether_testkit::TestServer;

    use super::*;

    use crate::hold::HoldState;
    use crate::session::liveness::pretended_ensemble::{session, until_unproven};

    #[tokio::test]
    async fn loss_that_a_watch_has_told_is_final() {
        let server = TestServer::start().await.unwrap();
        let session = session(server.connect_string()).await;
        let watch = HoldWatch::new("/lock", 1.into(), &session);
        assert!(watch.is_held());
        // No hold is there to keep up the heartbeat.
        until_unproven(&session).await;
        assert!(!watch.is_held());
        session.liveness().prove().await.unwrap();
        assert!(!watch.is_held(), "lost, and held again");
        assert_eq!(watch.state(), HoldState::Lost);
    }
}
