//! Notices for the user of a job while no server answers: none can be reached, or the one that is connected hangs.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bellwether::{Hold, zk};
use tokio::time::{Instant, sleep_until, timeout};

use crate::value::duration;

/// Shorter outages are not reported, such as the restart of a server.
const SILENT: Duration = Duration::from_secs(1);

/// The pause after a request that failed.
const REST: Duration = Duration::from_millis(100);

/// Asks the server every second, and reports when it does not answer, and when a server answers again. The heartbeat of the session alone
/// would notice a server that hangs only after seconds: its connection stays open. The job is stopped `grace` before the end of the hold.
pub(crate) async fn watch(
    zk: &zk::Client,
    hold: &Hold,
    grace: Duration,
    notice: impl Fn(String),
) -> Infallible {
    let (mut connection, mut asked) = (zk.states(), Instant::now());
    loop {
        // A lost connection is noticed at once.
        tokio::select! {
            () = sleep_until(asked + SILENT) => {}
            Ok(()) = connection.changed() => {}
        }
        asked = Instant::now();
        let mut answer = pin!(answer(zk));
        if timeout(SILENT, &mut answer).await.is_err() {
            let left = duration::text(hold.time_left().saturating_sub(grace));
            let silence = duration::text(asked.elapsed());
            notice(format!(
                "no server for {silence}; the command will be stopped in {left}"
            ));
            answer.await;
            let silence = duration::text(asked.elapsed());
            notice(format!("a server answers again after {silence}"));
        }
    }
}

/// Resolves when a server has answered. Never after the end of the session, which others report.
async fn answer(zk: &zk::Client) {
    loop {
        match zk.exists("/").await {
            Ok(_) | Err(zk::Error::Refused(_)) => return,
            Err(zk::Error::SessionEnded(_)) => pending().await,
            Err(_) => sleep_until(Instant::now() + REST).await,
        }
    }
}
