//! Where a session lives: the runtime that carries its connection, its heartbeat and the clocks of its holds.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep_until};

/// The runtime of a session. The futures of the recipes only wait for what happens there, so they can be awaited
/// on any executor.
#[derive(Clone, Debug)]
pub(crate) struct Home(Handle);

impl Home {
    /// A thread that all sessions of this process share. Nothing a user does in a task of their own can stop it,
    /// so heartbeats go on while a job computes.
    pub(crate) fn own_thread() -> Self {
        static THREAD: LazyLock<Runtime> = LazyLock::new(|| {
            Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("bellwether")
                .enable_all()
                .build()
                .expect("a process that may start no thread can do nothing here")
        });
        Self(THREAD.handle().clone())
    }

    /// The runtime of the caller.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn current() -> Self {
        Self(Handle::current())
    }

    pub(crate) fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.spawn(future)
    }

    /// Blocks the present thread, which must not be one that runs tasks.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// A timer of this runtime, which may be awaited on any other.
    pub(crate) fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        let _timers = self.0.enter();
        sleep_until(Instant::now() + duration)
    }

    /// Awaits a future for so long at most; `None` when that was not enough.
    pub(crate) async fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let sleep = self.sleep(limit);
        tokio::select! {
            biased;
            value = future => Some(value),
            () = sleep => None,
        }
    }
}
