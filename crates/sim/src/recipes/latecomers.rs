//! Links between servers that stall in one direction for most of a session timeout, and recover before the server is given up.
//!
//! The follower of an idle session receives nothing from the leader, which still receives from the follower. A worker asks for a lock: the
//! create is committed, but the leader got no report of activity since the link stalled, and expires the session. The next contender is
//! granted. Then the link recovers, and the follower passes on the reply to the create; it learns only later that the session has expired.

use std::time::Duration;

use bellwether::{Client, Lock};
use bellwether_testkit::History;
use bellwether_testkit::history::{Terms, What, check_holds};
use tokio::time::{Instant, sleep_until};

use crate::faults::Fault;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::worker::{Gone, Worker};

/// Session timeouts from one stall to the next, and when in each period the link stalls.
const PERIOD: u64 = 6;
const STALLS_AT: u64 = 2;

/// The plan of a seed in which links stall.
pub(crate) fn stalls(seed: u64) -> Plan {
    let mut plan = Plan::of(seed);
    let timeout = 4_000;
    plan.session_timeout = timeout;
    plan.workers = 2;
    plan.drift_ppm = 0;
    plan.latency_max = 3;
    plan.servers.members = 3;
    plan.servers.tick = timeout / 2;
    plan.servers.sync_limit = 10;
    plan.servers.link_delay = 0..3;
    plan.servers.lag_max = timeout / 2;
    plan.servers.pace_max = timeout / 20;
    plan.servers.lag_changes = 0;
    plan.servers.stalls = 0;
    plan.servers.expires_early = true;
    plan.servers.timeout_max = 20 * timeout;
    plan.servers.to_laggard = 0;
    plan.duration = 5 * PERIOD * timeout;
    plan.faults = (0..5)
        .flat_map(|index| {
            let at = index * PERIOD * timeout + 1;
            // Server 0 leads. Both workers connect to another server first.
            let cut = |worker| Fault::Cut {
                worker,
                server_hears: Some(1),
            };
            let deaf = Fault::ServerDeaf {
                server: 1,
                time: timeout,
            };
            [
                (at, cut(0)),
                (at + 1, cut(1)),
                (at + STALLS_AT * timeout, deaf),
            ]
        })
        .collect();
    plan.with_time_for_directories()
}

/// Worker 0 asks for the lock late in each stall, worker 1 a little later.
#[derive(Debug, Clone)]
pub(super) struct Latecomers {
    start: Instant,
    timeout: Duration,
}

impl Recipe for Latecomers {
    const NAME: &'static str = "latecomers";

    fn new(plan: &Plan) -> Self {
        Self {
            start: Instant::now(),
            timeout: Duration::from_millis(plan.session_timeout),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let period = self.timeout * u32::try_from(PERIOD).unwrap_or(1);
        let periods = self.start.elapsed().as_millis() / period.as_millis();
        let period = self.start + period * u32::try_from(periods).unwrap_or(0);
        // A contender that gets no answer for T/4 tries another server: the stall ends before.
        let percent = if worker.who == 0 { 277 } else { 279 };
        let late = self.timeout * percent / 100;
        let ask = sleep_until(period + late);
        worker.unless_stopped(ask).await?;
        let acquired = Lock::new(client, "/sim/lock").acquire().await;
        let ended = if let Ok(guard) = acquired {
            let token = guard.token().number();
            worker.note(What::Granted { token, weight: 1 });
            let end = sleep_until(Instant::now() + self.timeout);
            tokio::select! {
                biased;
                () = guard.lost() => worker.note(What::Lost { token }),
                () = end => {
                    worker.note(What::Releasing { token });
                    drop(guard.release().await);
                }
            }
            Round::Done
        } else {
            Round::Failed
        };
        let next = sleep_until(period + self.timeout * u32::try_from(PERIOD).unwrap_or(1));
        worker.unless_stopped(next).await?;
        Ok(ended)
    }

    fn check(&self, _: &Plan, history: &History) -> Result<(), String> {
        let terms = Terms {
            capacity: 1,
            session_timeout: self.timeout,
            grace: Duration::ZERO,
        };
        check_holds(history, &terms).map_err(|violation| violation.to_string())
    }
}
