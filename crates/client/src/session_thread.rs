//! The thread that carries the sessions of this process.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::process::{IS_SESSION_THREAD, Process};

const NAME: &str = "bellwether";

/// A forked child has a copy of each lock, and one that was held at that moment stays locked there. So a process and its children most likely
/// use different ones.
const SLOTS: usize = 64;

/// The runtime of the session thread, which is started on first use, and again on the first use in a forked child.
///
/// It carries all sessions of this process. A user's task that computes or blocks cannot stop a heartbeat. Nor can a busy session stop that
/// of another: its work for one session at a time is bounded.
///
/// # Panics
///
/// If the process cannot start a thread.
pub fn session_thread() -> Handle {
    static STARTED: [Mutex<Option<(Process, Handle)>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];
    let process = Process::current();
    let started = || {
        let slot = process.slot(&STARTED).lock();
        slot.unwrap_or_else(PoisonError::into_inner)
    };
    let own = |(of, handle): &(Process, Handle)| (*of == process).then(|| handle.clone());
    if let Some(handle) = started().as_ref().and_then(own) {
        return handle;
    }
    let runtime = runtime();
    let handle = runtime.handle().clone();
    {
        let mut started = started();
        if let Some(other) = started.as_ref().and_then(own) {
            drop(started);
            // Another thread was quicker.
            runtime.shutdown_background();
            return other;
        }
        // What a child has inherited is not dropped there.
        std::mem::forget(started.replace((process, handle.clone())));
    }
    std::thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || {
            IS_SESSION_THREAD.set(true);
            runtime.block_on(std::future::pending::<()>());
        })
        .expect("a process that may start no thread can do nothing here");
    handle
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        // Sockets and timers are checked after at most 16 tasks, so that heartbeats and clocks precede other work.
        .event_interval(16)
        // Only name resolution blocks.
        .max_blocking_threads(8)
        .build()
        .expect("a process without an event queue can do nothing here")
}
