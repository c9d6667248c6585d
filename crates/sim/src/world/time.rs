//! Virtual time: milliseconds since the beginning of a run.

use std::time::Duration;

use bellwether_testkit::history;

/// A moment of a run, in whole milliseconds, like tokio's timers.
pub type Ms = u64;

/// What the clocks of simulated machines show at the start of a run: long enough after boot for any look back.
const BOOT: Duration = Duration::from_secs(1_000_000);

/// The time of day when a run begins.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// The clock of one machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// How much too fast it runs, in parts per million.
    pub(crate) drift_ppm: i64,
    /// Error of its wall clock.
    pub(crate) day_offset: Duration,
}

impl Clock {
    /// Time since boot at the true time `now`.
    pub(crate) fn boot_time(&self, now: Ms) -> Duration {
        BOOT + self.elapsed(now)
    }

    /// Time of day at the true time `now`. Time servers correct it, so its error does not grow.
    pub(crate) fn since_epoch(&self, now: Ms) -> Duration {
        EPOCH + Duration::from_millis(now) + self.day_offset
    }

    fn elapsed(&self, now: Ms) -> Duration {
        // Enough for three centuries.
        let now = i64::try_from(now).unwrap_or(i64::MAX / 1_000_000);
        let micros = now * 1_000 + now * self.drift_ppm / 1_000;
        Duration::from_micros(micros.unsigned_abs())
    }
}

/// The time of day at a server, in milliseconds since 1970.
pub(crate) fn server_epoch_ms(now: Ms) -> i64 {
    let ms = EPOCH.as_millis() + u128::from(now);
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// The same moment in a history.
pub(crate) fn in_history(now: Ms) -> history::Moment {
    history::Moment::after_boot(BOOT + Duration::from_millis(now))
}
