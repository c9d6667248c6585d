//! The source of time, random numbers and tasks of client and recipes: the machine, or a simulation of many machines.
//!
//! Without the feature `simulation` it is always the machine, at no cost.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::rngs::OsRng;
#[cfg(not(feature = "simulation"))]
use rand::rngs::SmallRng as Generator;
// The runs that a seed stands for stay the same whatever small generator there is.
#[cfg(feature = "simulation")]
use rand::rngs::StdRng as Generator;
use rand::{SeedableRng as _, TryRngCore as _};

use crate::process::NativeTask;

#[cfg(feature = "simulation")]
mod simulated;

#[cfg(feature = "simulation")]
pub use simulated::{Entered, Task, World, enter};

/// The time on the clock that counts from boot, if a simulation sets it.
pub(crate) fn boot_time() -> Option<Duration> {
    #[cfg(feature = "simulation")]
    return simulated::world(|world| world.boot_time());
    #[cfg(not(feature = "simulation"))]
    None
}

/// The time of day.
pub fn system_time() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(since) = simulated::world(|world| world.since_epoch()) {
        return UNIX_EPOCH + since;
    }
    SystemTime::now()
}

/// The time of day in milliseconds since 1970.
pub fn epoch_ms() -> u64 {
    let since = system_time().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// A random number.
pub fn random() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(number) = simulated::world(|world| world.random()) {
        return number;
    }
    OsRng
        .try_next_u64()
        .expect("every system has random numbers")
}

/// A quick generator of random numbers; not for secrets.
pub(crate) fn rng() -> Generator {
    Generator::seed_from_u64(random())
}

/// The host, the user and the id that a simulation gives to this process.
pub fn identity() -> Option<(String, String, u32)> {
    #[cfg(feature = "simulation")]
    return simulated::world(|world| world.identity());
    #[cfg(not(feature = "simulation"))]
    None
}

/// Lets other tasks run first. In a simulation the task is ready again at once, and the simulation chooses.
pub async fn yield_now() {
    #[cfg(feature = "simulation")]
    if simulated::world(|_| ()).is_some() {
        return simulated::yield_now().await;
    }
    tokio::task::yield_now().await;
}

/// The future to spawn: `future` in this process alone, or in a simulation one that the simulation schedules.
#[cfg(not(feature = "simulation"))]
pub fn task<F: Future>(future: F) -> NativeTask<F> {
    NativeTask::new(future)
}

/// The future to spawn: `future` in this process alone, or in a simulation one that the simulation schedules.
#[cfg(feature = "simulation")]
pub fn task<F: Future>(future: F) -> NativeTask<Task<F>> {
    NativeTask::new(Task::new(future))
}
