//! Where a session lives: the thread that carries its connection, its heartbeat and the clocks of its holds.

use std::cell::Cell;
use std::fmt;
use std::future::pending;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use async_executor::Executor;
use async_io::Timer;
use asyncs::task::{self, JoinHandle, Spawn, Task, TaskHandle};
use futures_util::FutureExt as _;
use futures_util::future::Either;
use tokio::runtime::Handle;

/// The home of a session. The futures of the recipes only wait for what happens there, so they can be awaited on any
/// executor.
#[derive(Clone, Debug)]
pub(crate) enum Home {
    /// The thread that all sessions of this process share.
    OwnThread,
    /// The runtime of the caller.
    Caller(Handle),
}

impl Home {
    /// A thread of our own, started when it is first needed. Nothing a user does in a task of their own can stop it, so
    /// heartbeats go on while a job computes.
    pub(crate) fn own_thread() -> Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        STARTED.get_or_init(|| {
            std::thread::Builder::new()
                .name("bellwether".to_owned())
                .spawn(|| {
                    // The client library spawns by the scope of the thread.
                    let _scope = task::enter(&OwnThread);
                    IS_HERE.set(true);
                    // Waits in the reactor itself: a reply wakes this thread, and no other has to pass it on.
                    async_io::block_on(TASKS.run(pending::<()>()));
                })
                .expect("a process that may start no thread can do nothing here");
        });
        Self::OwnThread
    }

    /// The runtime of the caller.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn caller() -> Self {
        Self::Caller(Handle::current())
    }

    /// Runs a task there as long as the result lives.
    pub(crate) fn run(&self, future: impl Future<Output = ()> + Send + 'static) -> Running {
        Running {
            _task: self.spawn(future).attach(),
        }
    }

    /// Runs a task there to its end, whatever happens to the handle.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self {
            Self::OwnThread => {
                let _scope = task::enter(&OwnThread);
                task::spawn(future)
            }
            Self::Caller(handle) => {
                let _scope = handle.enter();
                task::spawn(future)
            }
        }
    }

    /// Runs a future there and waits for what comes of it; dropped, it drops the future there. The steps of a verb then follow
    /// each other without waking the caller's thread in between, and requests made together leave together.
    pub(crate) fn there<F>(&self, future: F) -> impl Future<Output = F::Output> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // On the heap either way: what a caller awaits stays small.
        let running = match self {
            // A panic is the caller's, and not the end of all sessions.
            Self::OwnThread if !IS_HERE.get() => {
                Either::Left(TASKS.spawn(AssertUnwindSafe(future).catch_unwind()))
            }
            Self::OwnThread | Self::Caller(_) => Either::Right(Box::pin(future)),
        };
        async {
            match running {
                Either::Left(task) => task.await.unwrap_or_else(|panic| resume_unwind(panic)),
                Either::Right(future) => future.await,
            }
        }
    }

    /// As [`there`](Self::there), but on the runtime of the caller too it is a task of its own: it goes on while nobody polls what is
    /// returned, so others may wait for it. `None` if that runtime has gone: a thread that waits without one outlives it.
    pub(crate) fn apart<F>(
        &self,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let running = match self {
            Self::OwnThread => Either::Left(self.there(future)),
            Self::Caller(_) => {
                let task = self.spawn(AssertUnwindSafe(future).catch_unwind());
                Either::Right(task.attach())
            }
        };
        async {
            match running {
                Either::Left(there) => Some(there.await),
                Either::Right(task) => {
                    let ended = task.await.ok()?;
                    Some(ended.unwrap_or_else(|panic| resume_unwind(panic)))
                }
            }
        }
    }

    /// A timer, which may be awaited anywhere.
    pub(crate) async fn sleep(&self, duration: Duration) {
        Timer::after(duration).await;
    }

    /// Awaits a future for so long at most; `None` when that was not enough.
    pub(crate) async fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = self.sleep(limit) => None,
        }
    }
}

/// A task that ends when this is dropped.
pub(crate) struct Running {
    _task: TaskHandle<()>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// Whether this is the thread that sessions share.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

/// Waits for a future on the present thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    async_io::block_on(future)
}

/// The tasks of the thread of our own.
static TASKS: Executor<'static> = Executor::new();

thread_local! {
    /// Whether this is the thread of our own.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

struct OwnThread;

impl Spawn for OwnThread {
    fn spawn(&self, task: Task) {
        TASKS.spawn(Box::into_pin(task.future)).detach();
    }
}
