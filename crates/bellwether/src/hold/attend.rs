//! The task that watches over a hold.

use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use tokio::sync::watch;
use tracing::{info, warn};

use super::HoldState;
use crate::client::Client;
use crate::error::{Outcome, outcome};
use crate::node_data::Revocation;
use crate::node_event::{Happened, OwnWatch};
use crate::sabotage::Sabotage;

/// A hold is watched for removal by another hand once it is this old. Shorter ones are over before it would matter, and
/// cost no watch.
const WATCH_AFTER: Duration = Duration::from_millis(10);

/// Keeps the state of a hold true until it is lost.
pub(super) async fn attend(
    client: Client,
    (node, czxid): (String, i64),
    own_watch: Option<OwnWatch>,
    state: watch::Sender<HoldState>,
    asked: watch::Sender<Option<Revocation>>,
) {
    let mut states = client.zk().states();
    let mut gone = Box::pin(node_gone(&client, &node, czxid, own_watch, &asked));
    loop {
        let link = *states.borrow_and_update();
        let now = match link {
            _ if client.is_sabotaged(Sabotage::IgnoreExpiry) => HoldState::Held,
            link if link.is_ended() => HoldState::Lost,
            _ if is_over(&client) => HoldState::Lost,
            zk::SessionState::Disconnected => HoldState::Suspended,
            _ => HoldState::Held,
        };
        // Once lost, it stays lost, whoever noticed first.
        let changed = state.send_if_modified(|state| {
            let changes = *state != now && *state != HoldState::Lost;
            if changes {
                *state = now;
            }
            changes
        });
        if changed && now == HoldState::Lost {
            let node = node.clone();
            log::emit(move || info!(node, "hold is lost"));
        }
        if now == HoldState::Lost {
            return;
        }
        // Never no time at all: such a timer would be done at once, and others could not run.
        let left = client.heart().deadline().left();
        let look = left.clamp(Duration::from_millis(1), look_again(&client));
        tokio::select! {
            () = &mut gone => {
                // The end of a release is told here too.
                if state.send_replace(HoldState::Lost) != HoldState::Lost {
                    let node = node.clone();
                    log::emit(move || info!(node, "hold was ended by another hand"));
                }
                return;
            }
            _ = states.changed() => {}
            () = client.home().sleep(look) => {}
        }
    }
}

/// Whether the clock says that the session may be over.
pub(super) fn is_over(client: &Client) -> bool {
    !client.heart().is_alive() && !client.is_sabotaged(Sabotage::IgnoreExpiry)
}

/// The longest sleep of one who watches a deadline: timers stand still while the machine is suspended.
pub(super) fn look_again(client: &Client) -> Duration {
    (client.session_timeout() / 20).max(Duration::from_millis(1))
}

/// Resolves when the node is gone by another hand, and passes on meanwhile what is asked of its holder.
async fn node_gone(
    client: &Client,
    node: &str,
    czxid: i64,
    mut own_watch: Option<OwnWatch>,
    asked: &watch::Sender<Option<Revocation>>,
) {
    if own_watch.is_none() {
        client.home().sleep(WATCH_AFTER).await;
    }
    loop {
        let own = match own_watch.take() {
            Some(own) => own,
            None => match client.zk().get_watched(node).await {
                Ok((data, stat, watch)) if stat.czxid == czxid => OwnWatch::of(&data, watch),
                // The next request waits in the client until there is a connection again, so this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => continue,
                // Gone, and perhaps another's already.
                Ok(_) | Err(zk::Error::NO_NODE) => return,
                // The session's end is told by its state.
                Err(error) if outcome(&error) == Outcome::SessionEnded => break,
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
