//! What a job's user is told while no server answers.

use std::future::pending;
use std::time::Duration;

use bellwether::{Hold, HoldState};
use tokio::time::{Instant, sleep_until};

use crate::duration;

/// An outage that is shorter is not told of: a server that is restarted, for example.
const SILENT: Duration = Duration::from_secs(1);

/// The outage that a hold is in, if it is in one.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    is_told: bool,
}

impl Outage {
    /// Notes how the hold stands now; returns what there is to say about it.
    pub(crate) fn note(&mut self, state: HoldState) -> Option<String> {
        match state {
            HoldState::Suspended => {
                self.since.get_or_insert_with(Instant::now);
                None
            }
            HoldState::Held => {
                let ended = std::mem::take(self);
                let since = ended.since.filter(|_| ended.is_told)?;
                let time = duration::text(since.elapsed());
                Some(format!("a server answers again after {time}"))
            }
            // What is lost, its keeper says.
            _ => None,
        }
    }

    /// Resolves when the outage has to be told of. Cancel safe.
    pub(crate) async fn lasts(&self) {
        match self.since {
            Some(since) if !self.is_told => sleep_until(since + SILENT).await,
            _ => pending().await,
        }
    }

    /// What is said then. The job is stopped `grace` before the end of the hold; if that is now, only that is said.
    pub(crate) fn tell(&mut self, hold: &Hold, grace: Duration) -> Option<String> {
        self.is_told = true;
        let silence = self.since.map(|since| since.elapsed()).unwrap_or_default();
        let left = hold.time_left().saturating_sub(grace);
        (left >= SILENT).then(|| {
            format!(
                "no server for {}; the command will be stopped in {}",
                duration::text(silence),
                duration::text(left)
            )
        })
    }
}
