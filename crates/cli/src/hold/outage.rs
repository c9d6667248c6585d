//! Notices for the user of a job while no server answers.

use std::future::pending;
use std::time::Duration;

use bellwether::{Hold, HoldState};
use tokio::time::{Instant, sleep_until};

use crate::value::duration;

/// Shorter outages are not reported, such as the restart of a server.
const SILENT: Duration = Duration::from_secs(1);

/// The present outage, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    is_told: bool,
}

impl Outage {
    /// Takes the new state of the hold into account, and returns a notice if there is one.
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
            // The keeper reports a lost hold.
            _ => None,
        }
    }

    /// Resolves when the outage has lasted long enough for a notice. Cancel safe.
    pub(crate) async fn lasts(&self) {
        match self.since {
            Some(since) if !self.is_told => sleep_until(since + SILENT).await,
            _ => pending().await,
        }
    }

    /// The notice. The job is stopped `grace` before the end of the hold; `None` if that is about now, because then only that is reported.
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
