//! Metrics of the recipes, through the facade of the `metrics` crate: nothing is recorded until the program installs a recorder.
//! docs/metrics.md describes each of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether_client as zk;
use metrics::{counter, histogram};

use crate::session::clock::Moment;

/// The wait of a contender for its hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTimer {
    begin: Moment,
    /// Whether another contender was in the way.
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

/// What was reported of the traffic of one session.
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
