//! Priorities of threads.

/// How much the nice value of a thread with low priority is above that of the process: it gets a tenth of the CPU time of a thread that has work as
/// well.
const NICENESS: i32 = 10;

/// Lowers the priority of the calling thread.
pub(crate) fn lower() {
    // Linux keeps a nice value for each thread; elsewhere it is one of the process, which stays as it is.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::warn!(%error, "cannot lower the priority of a thread");
    }
}
