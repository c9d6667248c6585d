//! The process that made a handle, and what becomes of the handle in a forked child.
//!
//! A child that was forked and has not called `exec` has a copy of all memory and shares all descriptors, but has only the thread that
//! forked. Bytes that it wrote to the socket of a session would be requests of its parent. Dropping that socket would remove it from the
//! parent's event queue, a wake-up of an inherited task would write to its event descriptor, and a lock that another thread held at the
//! moment of the fork is locked for ever. So a child neither uses nor drops what it has inherited.

use std::cell::Cell;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    /// Set by the thread that carries sessions.
    pub(crate) static IS_SESSION_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller runs on the session thread, where nothing may block, and which no forked child has.
pub fn is_session_thread() -> bool {
    IS_SESSION_THREAD.with(Cell::get)
}

/// A process. The id of one that has ended may be given to its grandchild, which is then taken for it; nothing cheaper is safer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The present process.
    pub fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether the present process is another one: a forked child. One system call.
    pub fn is_forked(self) -> bool {
        self.0 != std::process::id()
    }

    /// One of `slots.len()` places, most likely another one than that of its parent.
    pub(crate) fn slot<T>(self, slots: &[T]) -> &T {
        &slots[self.0 as usize % slots.len()]
    }

    /// The same as [`is_forked`](Self::is_forked), without the system call on the session thread: it is in no child.
    fn is_forked_here(self) -> bool {
        !is_session_thread() && self.is_forked()
    }
}

/// A value that belongs to the process that made it. A forked child forgets it instead of dropping it.
#[derive(Debug)]
pub struct Native<T> {
    /// Until it is dropped.
    value: Option<T>,
    process: Process,
}

impl<T> Native<T> {
    /// A value of the present process.
    pub fn new(value: T) -> Self {
        Self {
            value: Some(value),
            process: Process::current(),
        }
    }

    /// The process that it belongs to.
    pub fn process(&self) -> Process {
        self.process
    }
}

impl<T: Default> Default for Native<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for Native<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
            .as_ref()
            .expect("it is there until it is dropped")
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        if self.process.is_forked_here() {
            std::mem::forget(self.value.take());
        }
    }
}

/// A future that makes no progress in a forked child, cannot be woken there, and is forgotten there.
#[derive(Debug)]
pub struct NativeTask<F> {
    future: Native<Pin<Box<F>>>,
    /// The waker of the runtime, and ours around it.
    wakers: Option<(Waker, Waker)>,
}

impl<F: Future> NativeTask<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Native::new(Box::pin(future)),
            wakers: None,
        }
    }
}

impl<F: Future> Future for NativeTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, wakers } = &mut *self;
        let process = future.process;
        if process.is_forked_here() {
            return Poll::Pending;
        }
        if !matches!(wakers, Some((outer, _)) if outer.will_wake(cx.waker())) {
            let outer = cx.waker().clone();
            let own = NativeWaker(outer.clone(), process);
            *wakers = Some((outer, Arc::new(own).into()));
        }
        match (&mut future.value, wakers) {
            (Some(future), Some((_, waker))) => {
                future.as_mut().poll(&mut Context::from_waker(waker))
            }
            _ => Poll::Pending,
        }
    }
}

/// Wakes a task, but not from a forked child: that would write to a descriptor of the parent.
struct NativeWaker(Waker, Process);

impl Wake for NativeWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.1.is_forked_here() {
            self.0.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_forgets_what_it_has_inherited() {
        let (own, inherited) = (Arc::new(()), Arc::new(()));
        drop(Native::new(own.clone()));
        drop(Native {
            value: Some(inherited.clone()),
            // No process has it.
            process: Process(u32::MAX),
        });
        assert_eq!(
            (Arc::strong_count(&own), Arc::strong_count(&inherited)),
            (1, 2)
        );
    }
}
