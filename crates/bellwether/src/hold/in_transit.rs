//! A guard on its way from the session's thread to its caller.

use std::ops::{Deref, DerefMut};

use futures_util::future::BoxFuture;

use super::Hold;
use crate::session::runtime::SessionRuntime;

/// A hold that can be undone as if it had never existed: the crash mark becomes what it was before.
pub(crate) trait Undo {
    fn undo(self);
}

impl Undo for Hold {
    fn undo(self) {
        self.undo();
    }
}

impl<T: Undo> Undo for Option<T> {
    fn undo(self) {
        if let Some(held) = self {
            held.undo();
        }
    }
}

impl<T: Undo, E> Undo for Result<T, E> {
    fn undo(self) {
        self.ok().undo();
    }
}

/// A guard that its caller has not received yet. If it is dropped before it arrives, it is undone: a plain drop would leave a crash mark,
/// although no work was done under the hold.
#[derive(Debug)]
pub(crate) struct InTransit<T: Undo>(Option<T>);

impl<T: Undo> InTransit<T> {
    pub(crate) fn new(held: T) -> Self {
        Self(Some(held))
    }

    pub(crate) fn arrive(mut self) -> T {
        self.0.take().expect("it arrives once")
    }
}

impl<T: Undo> Deref for InTransit<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it has not arrived")
    }
}

impl<T: Undo> DerefMut for InTransit<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it has not arrived")
    }
}

impl<T: Undo> Drop for InTransit<T> {
    fn drop(&mut self) {
        self.0.take().undo();
    }
}

/// Acquires on the thread of the session, as [`SessionRuntime::run`]. A grant is undone if its caller has dropped the call.
///
/// Boxed, because otherwise the future of each caller would contain the future of a whole acquisition.
pub(crate) fn acquire_there<T, F>(
    runtime: &SessionRuntime,
    acquired: F,
) -> impl Future<Output = T> + Send + use<T, F>
where
    T: Undo + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let granted: BoxFuture<'static, InTransit<T>> =
        Box::pin(async { InTransit::new(acquired.await) });
    let runtime = runtime.clone();
    async move { runtime.run(granted).await.arrive() }
}
