//! The task that watches over a hold.

use std::sync::Weak;
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::hold::ephemeral_node::OwnWatch;
use crate::hold::hold_watch::{HoldState, HoldWatch};
use crate::node::data::Revocation;
use crate::session::Session;
use crate::session::retry::{Happened, Retry};
use crate::session::slots::HeldSlot;

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
        let look = left.clamp(Duration::from_millis(1), look_again(session));
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
            () = session.runtime().sleep(look) => {}
        }
    }
}

/// Whether the session has ended, or may have ended by the clock.
pub(super) fn is_over(session: &Session) -> bool {
    session.is_ended() || !session.liveness().is_alive()
}

/// The longest sleep of a task that watches a deadline: timers stand still while the machine is suspended.
pub(super) fn look_again(session: &Session) -> Duration {
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
