//! Priorities of threads.

use std::sync::atomic::Ordering::Relaxed;

use crate::metrics::Meters;

/// How much the nice value of a thread with low priority is above that of the process: it gets a tenth of the CPU time of a thread that has work as
/// well.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lowers the priority of the calling thread. If the system does not allow it, the first thread warns: a defence is missing then.
pub(crate) fn lower(meters: &Meters) {
    // Linux keeps a nice value for each thread; elsewhere it is one of the process, which stays as it is.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS)
        && !meters.keeps_priorities.swap(true, Relaxed)
    {
        tracing::warn!(%error, "cannot lower the priority of threads: crowds of connections and long reads take CPU time from sessions; allow the system call setpriority");
    }
    #[cfg(not(target_os = "linux"))]
    meters.keeps_priorities.store(true, Relaxed);
}
