//! The clock that deadlines are kept on: monotonic, and running on while the machine is suspended.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on the clock of this machine since boot.
///
/// The ordinary monotonic clock stands still while a laptop sleeps; the clocks of the servers do not. So session deadlines are
/// kept on the clock that counts suspend, where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::Monotonic;
        let now = clock_gettime(clock);
        // Neither is negative on a clock that counts from boot.
        Self(Duration::new(
            now.tv_sec.cast_unsigned(),
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        ))
    }

    /// The moment `nanos` after boot.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Nanoseconds since boot: enough for five centuries.
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long it is until then; zero when it has passed.
    pub fn left(self) -> Duration {
        self - Self::now()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
