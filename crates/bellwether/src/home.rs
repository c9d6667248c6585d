//! Where a session lives: the runtime that carries its connection, its heartbeat and the clocks of its holds.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bellwether_client::{is_session_thread, session_thread};
use futures_util::future::Either;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};

/// The home of a session. The futures of the recipes only wait for what happens there, so they can be awaited on any
/// executor.
#[derive(Clone, Debug)]
pub(crate) struct Home(Handle);

impl Home {
    /// The runtime that carries a session.
    pub(crate) fn of(zk: &bellwether_client::Client) -> Self {
        Self(zk.runtime().clone())
    }

    /// Runs a task there as long as the result lives.
    pub(crate) fn run(&self, future: impl Future<Output = ()> + Send + 'static) -> Running {
        Running(self.0.spawn(future).abort_handle())
    }

    /// Runs a task there to its end.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future);
    }

    /// Runs a future there and waits for what comes of it; dropped, it drops the future there. The steps of a verb then follow
    /// each other without waking the caller's thread in between.
    pub(crate) fn there<F>(&self, future: F) -> impl Future<Output = F::Output> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // On the heap either way: what a caller awaits stays small.
        let running = match self.is_own_thread() && !is_session_thread() {
            true => Either::Left(self.apart(future)),
            false => Either::Right(Box::pin(future)),
        };
        async {
            match running {
                // The session thread ends with the process.
                Either::Left(task) => match task.await {
                    Some(value) => value,
                    None => pending().await,
                },
                Either::Right(future) => future.await,
            }
        }
    }

    /// As [`there`](Self::there), but on the runtime of the caller too it is a task of its own: it goes on while nobody polls what is
    /// returned, so others may wait for it. `None` when the runtime has gone.
    pub(crate) fn apart<F>(
        &self,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let task = self.0.spawn(future);
        let attached = Running(task.abort_handle());
        joined(task, attached)
    }

    /// A timer, which may be awaited anywhere.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one timer of the recipes, on the session's own runtime"
    )]
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _runtime = self.0.enter();
        tokio::time::sleep(duration)
    }

    /// Awaits a future for `limit` at most; `None` when that was not enough.
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

    fn is_own_thread(&self) -> bool {
        self.0.id() == session_thread().id()
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a future as a task. `None` when its runtime has gone; a panic is the caller's, and not the end of all sessions.
async fn joined<T>(task: JoinHandle<T>, _attached: Running) -> Option<T> {
    match task.await {
        Ok(value) => Some(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Waits for a future on the present thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
