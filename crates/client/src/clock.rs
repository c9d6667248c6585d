//! The clock of deadlines: monotonic, and also running while the machine is suspended.

use std::ops::{Add, Sub};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::environment;

/// A point on the clock of this machine since boot.
///
/// The ordinary monotonic clock stops while a laptop sleeps; the clocks of the servers do not. So session deadlines use
/// the clock that includes suspend, where there is one. A hypervisor that pauses a virtual machine may stop this clock too, and nothing in
/// the machine can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        if let Some(simulated) = environment::boot_time() {
            return Self(simulated);
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::CLOCK_BOOTTIME;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::CLOCK_MONOTONIC;
        let now = clock_gettime(clock).expect("every system has this clock");
        // Neither is negative: the clock counts from boot.
        Self(Duration::new(
            now.tv_sec().cast_unsigned(),
            u32::try_from(now.tv_nsec()).unwrap_or_default(),
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

    /// The time left until this moment; zero when it has passed.
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
