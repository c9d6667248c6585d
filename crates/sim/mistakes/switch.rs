//! Which deliberate mistake is made. Only the patched copy of the workspace has this module.

use std::cell::Cell;
use std::sync::OnceLock;

thread_local! {
    static OF_THREAD: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Makes a mistake on this thread from now on, or none: a simulated run has a thread to itself.
pub fn make(name: Option<&'static str>) {
    OF_THREAD.set(name);
}

/// Whether a mistake is made: on this thread, or in the whole process because the environment names it.
pub fn is_made(name: &str) -> bool {
    static OF_PROCESS: OnceLock<Option<String>> = OnceLock::new();
    let of_process = || std::env::var("BELLWETHER_MISTAKE").ok();
    OF_THREAD.get() == Some(name) || OF_PROCESS.get_or_init(of_process).as_deref() == Some(name)
}
