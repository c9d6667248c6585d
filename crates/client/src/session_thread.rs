//! The thread that carries the sessions of this process.

use std::cell::Cell;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

const NAME: &str = "bellwether";

thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller runs on the session thread, where nothing may block.
pub fn is_session_thread() -> bool {
    HERE.with(Cell::get)
}

/// The runtime of the session thread, which is started on first use.
///
/// It carries all sessions of this process. A user's task that computes or blocks cannot stop a heartbeat. Nor can a busy session stop that
/// of another: its work for one session at a time is bounded.
///
/// # Panics
///
/// If the process cannot start a thread.
pub fn session_thread() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Sockets and timers are checked after at most 16 tasks, so that heartbeats and clocks precede other work.
            .event_interval(16)
            // Only name resolution blocks.
            .max_blocking_threads(8)
            .build()
            .expect("a process without an event queue can do nothing here");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || {
                HERE.set(true);
                runtime.block_on(std::future::pending::<()>());
            })
            .expect("a process that may start no thread can do nothing here");
        handle
    })
}
