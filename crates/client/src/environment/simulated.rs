//! The simulation of the present thread, if any.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A simulation of processes, each with its own clock. Calls come from its own thread, and concern the process that it
/// runs at that moment.
pub trait World {
    /// The time on the clock of the present process that counts from boot.
    fn boot_time(&self) -> Duration;

    /// The time of day in the present process.
    fn since_epoch(&self) -> Duration;

    /// A random number.
    fn random(&self) -> u64;

    /// The host, the user and the id of the present process.
    fn identity(&self) -> (String, String, u32);

    /// Registers a task that the present process spawns, and returns its number.
    fn adopt(&self) -> u64;

    /// A runtime polls a task. `run` polls its future, unless the task may not run now; then its waker is kept. Returns false if its
    /// process was killed: then its future is dropped.
    fn poll(
        &self,
        task: u64,
        cx: &mut Context<'_>,
        run: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> bool;

    /// A task is dropped: `end` drops its future.
    fn dismiss(&self, task: u64, end: &mut dyn FnMut());
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Makes `world` the simulation of the present thread, until the result is dropped.
#[must_use]
pub fn enter(world: Rc<dyn World>) -> Entered {
    WORLD.with(|present| {
        let before = present.borrow_mut().replace(world);
        assert!(before.is_none(), "one simulation on a thread at a time");
    });
    Entered(())
}

/// The present thread runs a simulation.
#[derive(Debug)]
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        WORLD.with(|present| present.borrow_mut().take());
    }
}

/// Calls the simulation of the present thread. At the end of a thread there is none.
pub(super) fn world<T>(ask: impl FnOnce(&dyn World) -> T) -> Option<T> {
    let world = WORLD.try_with(|present| present.borrow().clone()).ok()??;
    Some(ask(&*world))
}

/// Is pending once. tokio's own `yield_now` would wake the task only when the runtime looks at its timers.
pub(super) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| match std::mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// A future that a simulation runs; outside of one, an ordinary future.
pub struct Task<F: Future> {
    future: Option<Pin<Box<F>>>,
    number: Option<u64>,
}

impl<F: Future> Task<F> {
    pub(super) fn new(future: F) -> Self {
        Self {
            future: Some(Box::pin(future)),
            number: world(|world| world.adopt()),
        }
    }
}

impl<F: Future> Task<F> {
    /// Drops the future, in its process.
    fn end(&mut self) {
        if let Some(number) = self.number {
            let mut future = self.future.take();
            world(|world| world.dismiss(number, &mut || drop(future.take())));
        }
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let number = self.number;
        let Some(future) = &mut self.future else {
            // Its process was killed.
            return Poll::Pending;
        };
        let Some(number) = number else {
            return future.as_mut().poll(cx);
        };
        let mut output = Poll::Pending;
        let lives = world(|world| {
            world.poll(number, cx, &mut |cx| {
                output = future.as_mut().poll(cx);
                match output {
                    Poll::Ready(_) => Poll::Ready(()),
                    Poll::Pending => Poll::Pending,
                }
            })
        });
        if lives == Some(false) {
            self.end();
        }
        output
    }
}

impl<F: Future> Drop for Task<F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            self.end();
        }
    }
}

impl<F: Future> fmt::Debug for Task<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
