//! The runtime of a session, which carries its connection, its heartbeat and the clocks of its holds.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::process::Process;
use bellwether_client::{environment, is_session_thread, session_thread};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, ready};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

/// The runtime that a session runs on. Futures of recipes only wait for results from there, so they can be awaited on any executor.
#[derive(Clone, Debug)]
pub(crate) struct SessionRuntime {
    handle: Handle,
    /// True if that is the session thread.
    is_session_thread: bool,
    process: Process,
    /// The state of the session, which ends with the runtime.
    session: watch::Receiver<zk::SessionState>,
}

impl SessionRuntime {
    /// The runtime that carries a session.
    pub(crate) fn of(zk: &zk::Client) -> Self {
        let handle = zk.runtime().clone();
        Self {
            is_session_thread: handle.id() == session_thread().id(),
            process: zk.process(),
            session: zk.states(),
            handle,
        }
    }

    /// Spawns a task there. Dropping the result aborts it.
    pub(crate) fn spawn_guarded(
        &self,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> TaskGuard {
        let task = self.start(future);
        TaskGuard(task.map(|task| task.abort_handle()), self.process)
    }

    /// Spawns a task there that runs to its end.
    pub(crate) fn spawn_detached(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.start(future));
    }

    /// Spawns a task there, unless this is a forked child, where no thread would run it.
    fn start<F>(&self, future: F) -> Option<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        (!self.is_forked()).then(|| self.handle.spawn(environment::task(future)))
    }

    /// Returns whether this is a forked child of the process that it belongs to.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    /// Runs a future there and returns its output. Dropping the result drops the future there. The steps of a recipe then follow each other
    /// without waking the caller's thread in between.
    pub(crate) fn run<F>(&self, future: F) -> impl Future<Output = F::Output> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // Both are on the heap, so that the caller's future stays small.
        let running = match self.is_session_thread && !is_session_thread() && !self.is_forked() {
            true => Either::Left(self.spawn(future)),
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

    /// Does the same as [`run`](Self::run), but always as a task of its own, even on the caller's runtime. It makes progress while the
    /// caller does not poll the result, so others may wait for it. `None` when the runtime is gone.
    pub(crate) fn spawn<F>(
        &self,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let task = self.start(future);
        let attached = TaskGuard(task.as_ref().map(JoinHandle::abort_handle), self.process);
        joined(task, attached)
    }

    /// Does the same as [`spawn`](Self::spawn), unless the caller is a task of the session thread already.
    pub(crate) async fn as_task<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match is_session_thread() {
            true => Some(future.await),
            false => self.spawn(future).await,
        }
    }

    /// A timer for a task that runs there, and so ends with the runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one timer of the recipes, on the session's own runtime"
    )]
    pub(crate) fn timer(&self, duration: Duration) -> tokio::time::Sleep {
        let _runtime = self.handle.enter();
        tokio::time::sleep(duration)
    }

    /// A timer that can be awaited on any executor. It is done at once where the runtime does not run it: after its end, and in a forked
    /// child.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        if self.is_forked() {
            return Either::Right(ready(()).boxed());
        }
        let timer = self.timer(duration);
        if self.is_session_thread {
            return Either::Left(timer);
        }
        let mut session = self.session.clone();
        let gone = zk::SessionState::Ended(zk::SessionEnd::RuntimeGone);
        Either::Right(Box::pin(async move {
            // An error says that no handle of the session is left.
            let is_gone = async { session.wait_for(|state| *state == gone).await.is_ok() };
            tokio::select! {
                biased;
                // First: a timer panics after the end of its runtime. The session ends before the timers do.
                true = is_gone => {}
                () = timer => {}
            }
        }))
    }

    /// Awaits a future for at most `limit`; `None` after that.
    pub(crate) fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        // On the heap: the future of a call is large, and each async function that it passes through would contain it twice.
        let future = Box::pin(future);
        async move {
            tokio::select! {
                biased;
                value = future => Some(value),
                () = self.sleep(limit) => None,
            }
        }
    }
}

/// See [`SessionRuntime::sleep`].
pub(crate) type Sleep = Either<tokio::time::Sleep, BoxFuture<'static, ()>>;

/// A task that is aborted on drop.
#[derive(Debug)]
pub(crate) struct TaskGuard(Option<AbortHandle>, Process);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if let Some(task) = &self.0
            && !self.1.is_forked()
        {
            task.abort();
        }
    }
}

/// Waits for a task. `None` when its runtime is gone, or this is a forked child. A panic of the task continues in the caller, so that it does not end all sessions.
async fn joined<T>(task: Option<JoinHandle<T>>, _attached: TaskGuard) -> Option<T> {
    match task?.await {
        Ok(value) => Some(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Blocks the current thread until a future is ready.
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
